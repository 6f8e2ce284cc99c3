//! What a kernel did wrong: which thread, where in the source, at which value.

use super::compiler::Library;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// What kind of mistake it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access before or behind a parameter's memory.
    OutOfBounds,
    /// A vector access at an address that is no multiple of its size.
    Misaligned,
    /// A read of global memory that nobody wrote.
    Uninitialized,
    /// Two threads at one element of global memory, one of them writing, in no order.
    Race,
    /// An access before or behind an array in shared memory.
    SharedOutOfBounds,
    /// A read of shared memory that the block has not written.
    SharedUninitialized,
    /// Two threads at one element of shared memory, one of them writing, with no barrier between.
    SharedRace,
    /// A barrier that not all threads of the block reach.
    DivergentBarrier,
    /// An exchange or vote that not all lanes of the warp reach.
    InactiveLane,
    /// A write through a parameter that is only read.
    ReadOnly,
    /// Two parameters with the same memory, one of them written.
    Alias,
    /// What the address sanitizer saw: a local array or a table beyond its end.
    Sanitizer,
    /// Memory that no parameter is, or undefined arithmetic.
    Undefined,
    /// More processor time than the limit.
    Timeout,
    /// An element of a result that no thread wrote.
    Unwritten,
}

impl FaultKind {
    /// The kinds that the emulator reports, by its numbers for them.
    const REPORTED: [FaultKind; 14] = [
        FaultKind::OutOfBounds,
        FaultKind::Misaligned,
        FaultKind::Uninitialized,
        FaultKind::Race,
        FaultKind::SharedOutOfBounds,
        FaultKind::SharedUninitialized,
        FaultKind::SharedRace,
        FaultKind::DivergentBarrier,
        FaultKind::InactiveLane,
        FaultKind::ReadOnly,
        FaultKind::Alias,
        FaultKind::Sanitizer,
        FaultKind::Undefined,
        FaultKind::Timeout,
    ];

    fn title(self) -> &'static str {
        match self {
            FaultKind::OutOfBounds => "access out of bounds",
            FaultKind::Misaligned => "misaligned access",
            FaultKind::Uninitialized => "read of memory that nobody wrote",
            FaultKind::Race => "race on global memory",
            FaultKind::SharedOutOfBounds => "shared memory accessed out of bounds",
            FaultKind::SharedUninitialized => {
                "read of shared memory that the block has not written"
            }
            FaultKind::SharedRace => "race on shared memory",
            FaultKind::DivergentBarrier => "divergent barrier",
            FaultKind::InactiveLane => "exchange with an inactive lane",
            FaultKind::ReadOnly => "write to memory that is only read",
            FaultKind::Alias => "two parameters with the same memory",
            FaultKind::Sanitizer => "local memory accessed out of bounds",
            FaultKind::Undefined => "undefined behaviour",
            FaultKind::Timeout => "a kernel that does not end",
            FaultKind::Unwritten => "an element of the result that no thread wrote",
        }
    }
}

/// A line of a generated source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file.
    pub path: String,
    /// From 1 on.
    pub number: usize,
    /// What it says.
    pub text: String,
    /// The helper function in which it happened, if it was called from this line.
    pub inside: Option<String>,
}

/// Memory that a fault is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The parameter's place, or none for shared memory.
    pub parameter: Option<usize>,
    /// What it is called: a value, or an array in shared memory.
    pub name: String,
    /// The first byte of the access; before the memory if negative.
    pub at_bytes: i64,
    /// Bytes of the access.
    pub access_bytes: usize,
    /// Bytes that there are.
    pub extent_bytes: u64,
}

/// The thread that a fault's thread conflicts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its block.
    pub block: u32,
    /// Its number in the block.
    pub thread: u32,
    /// Where it was.
    pub line: Option<Line>,
}

/// A mistake of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of mistake it is.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// The block that made it.
    pub block: u32,
    /// The thread of the block.
    pub thread: u32,
    /// Where in the source.
    pub line: Option<Line>,
    /// The memory that it is about.
    pub memory: Option<Memory>,
    /// The line of the `.ir` text of the value that is computed or accessed there.
    pub value: Option<String>,
    /// The other thread of a race, or of a barrier.
    pub other: Option<Other>,
    /// What else there is to say.
    pub detail: String,
}

/// An instruction: a library and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub library: u32,
    pub offset: u64,
}

/// A fault as the emulator's process reports it.
#[derive(Debug)]
pub(crate) struct RawFault {
    pub kind: u8,
    pub block: u32,
    pub thread: u32,
    pub parameter: i32,
    pub at: i64,
    pub bytes: u32,
    pub extent: u64,
    pub other: Option<(u32, u32, Place)>,
    pub frames: Vec<Place>,
    pub text: String,
}

impl Fault {
    /// A result's element that no thread wrote.
    pub(crate) fn unwritten(kernel: &str, value: String, element: usize) -> Fault {
        Fault {
            kind: FaultKind::Unwritten,
            kernel: kernel.to_string(),
            block: 0,
            thread: 0,
            line: None,
            memory: None,
            value: Some(value),
            other: None,
            detail: format!("element {element}"),
        }
    }

    pub(crate) fn new(raw: RawFault, kernel: &str, libraries: &[Library]) -> Fault {
        let kind = FaultKind::REPORTED.get(usize::from(raw.kind)).copied();
        let kind = kind.unwrap_or(FaultKind::Undefined);
        let line = resolve(libraries, kernel, &raw.frames);
        let other = raw.other.map(|(block, thread, place)| {
            let line = resolve(libraries, kernel, &[place]);
            Other { block, thread, line }
        });
        // For shared memory the text is the array's name, behind what the other thread did.
        let (done, array) = raw.text.rsplit_once(' ').unwrap_or(("", &raw.text));
        let shared = matches!(
            kind,
            FaultKind::SharedOutOfBounds | FaultKind::SharedUninitialized | FaultKind::SharedRace
        );
        let parameter = usize::try_from(raw.parameter).ok();
        let name = match parameter {
            Some(parameter) => format!("parameter {parameter}"),
            None => format!("`{array}`"),
        };
        let memory = (shared || parameter.is_some()).then_some(Memory {
            parameter,
            name,
            at_bytes: raw.at,
            access_bytes: raw.bytes as usize,
            extent_bytes: raw.extent,
        });
        let detail = match kind {
            FaultKind::Alias => format!("parameters {} and {} overlap", raw.parameter, raw.text),
            FaultKind::Race => raw.text,
            _ if shared => done.to_string(),
            _ => raw.text,
        };
        let (block, thread) = (raw.block, raw.thread);
        Fault {
            kind,
            kernel: kernel.to_string(),
            block,
            thread,
            line,
            memory,
            value: None,
            other,
            detail,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The folder is gone with the emulator, unless it is for a debugger.
        let file = Path::new(&self.path).file_name().unwrap_or_default().to_string_lossy();
        write!(f, "{file}:{}: `{}`", self.number, self.text)?;
        match &self.inside {
            Some(function) => write!(f, " (in {function})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in kernel `{}`", self.kind.title(), self.kernel)?;
        // No thread is at fault for what none did.
        if self.kind != FaultKind::Unwritten {
            write!(f, "\n  block {}, thread {}", self.block, self.thread)?;
        }
        if let Some(line) = &self.line {
            write!(f, ", at {line}")?;
        }
        if let Some(memory) = &self.memory {
            let Memory { name, at_bytes, access_bytes, extent_bytes, .. } = memory;
            if *access_bytes > 0 {
                let element = at_bytes.div_euclid(*access_bytes as i64);
                write!(
                    f,
                    "\n  element {element} of {name}: {access_bytes} bytes from byte {at_bytes} on, of {extent_bytes}"
                )?;
            } else {
                write!(f, "\n  {name}, {extent_bytes} bytes")?;
            }
        }
        match (&self.other, self.detail.as_str()) {
            (Some(other), did @ ("wrote" | "read")) => {
                write!(f, "\n  block {}, thread {} {did} it", other.block, other.thread)?;
                if let Some(line) = &other.line {
                    write!(f, " at {line}")?;
                }
                write!(f, ", and nothing puts the two in order")?;
            }
            (_, "") => {}
            (Some(Other { line: Some(line), .. }), detail) => write!(f, "\n  {detail}: {line}")?,
            (_, detail) => write!(f, "\n  {detail}")?,
        }
        if let Some(value) = &self.value {
            write!(f, "\n  value {value}")?;
        }
        Ok(())
    }
}

/// The line of generated source that an instruction comes from; of its callers, innermost first,
/// the first that stands in the kernel itself, or else in any source.
pub(crate) fn resolve(libraries: &[Library], kernel: &str, frames: &[Place]) -> Option<Line> {
    let mut lines = Vec::new();
    for frame in frames {
        let Some(library) = libraries.get(frame.library as usize) else { continue };
        let in_source = |(function, path, number): &(String, String, usize)| {
            let file = Path::new(path).file_name();
            let source = library.sources.iter().find(|s| s.path.file_name() == file)?;
            let text = source.text.lines().nth(number.checked_sub(1)?)?.trim().to_string();
            let name = function.rsplit("::").next().unwrap_or(function);
            let name = name.split('(').next().unwrap_or(name).to_string();
            Some((name, Line { path: path.clone(), number: *number, text, inside: None }))
        };
        lines.extend(addr2line(library, frame.offset).iter().filter_map(in_source));
    }
    let Some(at) = lines.iter().position(|(function, _)| function == kernel) else {
        return lines.into_iter().map(|(_, line)| line).next();
    };
    // What the kernel called there.
    let inside = (at > 0).then(|| lines[0].0.clone());
    let (_, line) = lines.swap_remove(at);
    Some(Line { inside, ..line })
}

/// Function, file and line of an instruction, innermost first. Nothing where the tool is missing:
/// a fault without its line is still a fault.
fn addr2line(library: &Library, offset: u64) -> Vec<(String, String, usize)> {
    let mut command = Command::new("addr2line");
    command.args(["-i", "-f", "-C", "-e"]).arg(&library.path).arg(format!("0x{offset:x}"));
    let Ok(output) = command.output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let (pairs, _) = lines.as_chunks();
    let parse = |&[function, place]: &[&str; 2]| {
        let (path, number) =
            place.split_once(" (").map_or(place, |(place, _)| place).rsplit_once(':')?;
        Some((function.to_string(), path.to_string(), number.parse().ok()?))
    };
    pairs.iter().filter_map(parse).collect()
}
