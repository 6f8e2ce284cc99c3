//! A process that runs kernels: commands go to it, replies come back.

use super::compiler::{Folder, Library, Options};
use super::error::{Error, Result};
use super::fault::{Fault, Line, Place, RawFault, resolve};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// Memory of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferId(u32);

/// One argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// `bytes` of a buffer from byte `at` on: what the kernel may touch through this pointer.
    Memory {
        /// The buffer.
        buffer: BufferId,
        /// The first byte.
        at: usize,
        /// How many.
        bytes: usize,
        /// Whether the kernel may write them. It must, if its pointer is not `const`.
        writable: bool,
    },
    /// An `int`.
    Int(i32),
    /// A `float`.
    Float(f32),
}

/// The threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub n_blocks: usize,
    /// Threads of a block.
    pub n_threads: usize,
    /// Bytes of shared memory that a block asks for.
    pub shared_bytes: usize,
}

/// Who wrote an element last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The block.
    pub block: u32,
    /// The thread of the block.
    pub thread: u32,
    pub(crate) place: Place,
}

/// A running emulator. After a fault it is over: start another.
#[derive(Debug)]
pub struct Process {
    child: Child,
    commands: BufWriter<Commands>,
    replies: BufReader<ChildStdout>,
    libraries: Vec<Library>,
    n_buffers: u32,
    options: Options,
    number: usize,
    /// Its files live as long as it does.
    folder: Arc<Folder>,
}

/// The process's input, and a copy of it for a debugger.
#[derive(Debug)]
struct Commands {
    stdin: ChildStdin,
    record: Option<File>,
}

impl Write for Commands {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.stdin.write(bytes)?;
        if let Some(record) = &mut self.record {
            record.write_all(&bytes[..n])?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdin.flush()?;
        self.record.as_mut().map_or(Ok(()), |record| record.flush())
    }
}

impl Process {
    pub(crate) fn start(folder: Arc<Folder>, number: usize, options: Options) -> Result<Process> {
        let record = match options.debug {
            true => Some(
                File::create(folder.commands(number))
                    .map_err(Error::io("cannot record commands"))?,
            ),
            false => None,
        };
        let mut command = Command::new(folder.program());
        // Ours end with the process, and leaks are not what is looked for.
        command
            .env("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0:detect_stack_use_after_return=0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("cannot start the emulator"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Died { stderr: "it has no pipes".into() });
        };
        Ok(Process {
            child,
            commands: BufWriter::with_capacity(1 << 16, Commands { stdin, record }),
            replies: BufReader::with_capacity(1 << 16, stdout),
            libraries: Vec::new(),
            n_buffers: 0,
            options,
            number,
            folder,
        })
    }

    /// Loads a library's kernels, once: its number for [`Process::launch`].
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn open(&mut self, library: &Library) -> Result<usize> {
        if let Some(known) = self.libraries.iter().position(|known| known.path == library.path) {
            return Ok(known);
        }
        let path = library.path.to_string_lossy().into_owned();
        self.send(&[b"O", &(path.len() as u32).to_le_bytes(), path.as_bytes()])?;
        self.libraries.push(library.clone());
        Ok(self.libraries.len() - 1)
    }

    /// New memory whose elements, and so the smallest accesses, have `granule` bytes. What nobody wrote is NaN, and a kernel that
    /// reads it is at fault.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn alloc(&mut self, bytes: usize, granule: usize) -> Result<BufferId> {
        self.make(bytes, granule, false)
    }

    /// New memory with these contents.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn upload(&mut self, contents: &[u8], granule: usize) -> Result<BufferId> {
        let buffer = self.make(contents.len(), granule, true)?;
        self.write(buffer, 0, contents)?;
        Ok(buffer)
    }

    /// New memory of zeros, all written.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn zeros(&mut self, bytes: usize, granule: usize) -> Result<BufferId> {
        self.make(bytes, granule, true)
    }

    /// Gives memory back; its number is not used again.
    ///
    /// # Errors
    /// [`Error::Died`].
    pub fn free(&mut self, buffer: BufferId) -> Result<()> {
        self.send(&[b"F", &buffer.0.to_le_bytes()])
    }

    fn make(&mut self, bytes: usize, granule: usize, written: bool) -> Result<BufferId> {
        let id = self.n_buffers;
        self.n_buffers += 1;
        self.send(&[
            b"B",
            &id.to_le_bytes(),
            &(bytes as u64).to_le_bytes(),
            &(granule as u32).to_le_bytes(),
            &[u8::from(written)],
        ])?;
        Ok(BufferId(id))
    }

    /// Copies bytes to a buffer.
    ///
    /// # Errors
    /// [`Error::Died`] if the buffer is too small.
    pub fn write(&mut self, buffer: BufferId, at: usize, contents: &[u8]) -> Result<()> {
        self.range(b'W', buffer, at, contents.len())?;
        self.send(&[contents])
    }

    /// Makes bytes of a buffer unwritten again.
    ///
    /// # Errors
    /// [`Error::Died`] if the buffer is too small.
    pub fn forget(&mut self, buffer: BufferId, at: usize, bytes: usize) -> Result<()> {
        self.range(b'U', buffer, at, bytes)
    }

    /// The bytes of a buffer.
    ///
    /// # Errors
    /// [`Error::Died`] if the buffer is too small.
    pub fn read(&mut self, buffer: BufferId, at: usize, out: &mut [u8]) -> Result<()> {
        self.range(b'R', buffer, at, out.len())?;
        self.receive(out)
    }

    /// The first byte of these that nobody wrote.
    ///
    /// # Errors
    /// [`Error::Died`] if the buffer is too small.
    pub fn first_unwritten(
        &mut self,
        buffer: BufferId,
        at: usize,
        bytes: usize,
    ) -> Result<Option<usize>> {
        self.range(b'V', buffer, at, bytes)?;
        let first = self.receive_u64()?;
        Ok((first != u64::MAX).then_some(first as usize))
    }

    /// The thread of a kernel that wrote a byte last.
    ///
    /// # Errors
    /// [`Error::Died`] if the buffer is too small.
    pub fn writer(&mut self, buffer: BufferId, at: usize) -> Result<Option<Writer>> {
        self.range(b'P', buffer, at, 1)?;
        let known = self.receive_u8()? != 0;
        let (block, thread) = (self.receive_u32()?, self.receive_u32()?);
        let place = self.receive_place()?;
        Ok(known.then_some(Writer { block, thread, place }))
    }

    /// The source line of a kernel at which a thread wrote.
    pub fn line_of(&self, writer: &Writer, kernel: &str) -> Option<Line> {
        resolve(&self.libraries, kernel, &[writer.place])
    }

    /// Runs a kernel of a library that was opened, to its end.
    ///
    /// # Errors
    /// [`Error::Launch`] if arguments or threads do not fit the kernel; [`Error::Fault`] if a
    /// thread does what it must not do; [`Error::Died`].
    pub fn launch(
        &mut self,
        library: usize,
        kernel: &str,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<()> {
        let fail = |message: String| Error::Launch { kernel: kernel.to_string(), message };
        let known = self
            .libraries
            .get(library)
            .and_then(|library| library.kernels.iter().position(|(_, name)| name == kernel));
        let index = known.ok_or_else(|| fail(format!("library {library} has no such kernel")))?;
        let narrow = |what: &str, n: usize| {
            u32::try_from(n).map_err(|_| fail(format!("{n} {what} are more than 2^32")))
        };
        let header = [
            library as u32,
            index as u32,
            narrow("blocks", shape.n_blocks)?,
            narrow("threads", shape.n_threads)?,
            narrow("bytes of shared memory", shape.shared_bytes)?,
            self.options.limit_seconds,
            arguments.len() as u32,
        ];
        self.send(&[b"L"])?;
        for word in header {
            self.send(&[&word.to_le_bytes()])?;
        }
        for argument in arguments {
            match *argument {
                Argument::Int(x) => self.send(&[b"i", &x.to_le_bytes()])?,
                Argument::Float(x) => self.send(&[b"f", &x.to_le_bytes()])?,
                Argument::Memory { buffer, at, bytes, writable } => {
                    self.range(if writable { b'w' } else { b'r' }, buffer, at, bytes)?;
                }
            }
        }
        match self.receive_u8()? {
            0 => Ok(()),
            _ => {
                let raw = self.receive_fault()?;
                Err(Error::Fault(Box::new(Fault::new(raw, kernel, &self.libraries))))
            }
        }
    }

    /// A command that begins with a range of a buffer.
    fn range(&mut self, command: u8, buffer: BufferId, at: usize, bytes: usize) -> Result<()> {
        self.send(&[
            &[command],
            &buffer.0.to_le_bytes(),
            &(at as u64).to_le_bytes(),
            &(bytes as u64).to_le_bytes(),
        ])
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        for part in parts {
            if self.commands.write_all(part).is_err() {
                return Err(self.died());
            }
        }
        Ok(())
    }

    fn receive(&mut self, out: &mut [u8]) -> Result<()> {
        let done = self.commands.flush().and_then(|()| self.replies.read_exact(out));
        done.map_err(|_| self.died())
    }

    fn receive_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.receive(&mut bytes)?;
        Ok(bytes)
    }

    fn receive_u8(&mut self) -> Result<u8> {
        self.receive_array().map(|[byte]| byte)
    }

    fn receive_u32(&mut self) -> Result<u32> {
        self.receive_array().map(u32::from_le_bytes)
    }

    fn receive_u64(&mut self) -> Result<u64> {
        self.receive_array().map(u64::from_le_bytes)
    }

    fn receive_place(&mut self) -> Result<Place> {
        Ok(Place { library: self.receive_u32()?, offset: self.receive_u64()? })
    }

    fn receive_fault(&mut self) -> Result<RawFault> {
        let kind = self.receive_u8()?;
        let (block, thread) = (self.receive_u32()?, self.receive_u32()?);
        let parameter = self.receive_u32()? as i32;
        let at = self.receive_u64()? as i64;
        let bytes = self.receive_u32()?;
        let extent = self.receive_u64()?;
        let has_other = self.receive_u8()? != 0;
        let (other_block, other_thread) = (self.receive_u32()?, self.receive_u32()?);
        let other_place = self.receive_place()?;
        let other = has_other.then_some((other_block, other_thread, other_place));
        let n_frames = self.receive_u32()?;
        let frames = (0..n_frames).map(|_| self.receive_place()).collect::<Result<_>>()?;
        let mut text = vec![0; self.receive_u32()? as usize];
        self.receive(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(RawFault { kind, block, thread, parameter, at, bytes, extent, other, frames, text })
    }

    /// The error of a process that does not answer.
    fn died(&mut self) -> Error {
        let _ = self.child.kill();
        let mut stderr = String::new();
        if let Some(pipe) = &mut self.child.stderr {
            // What it said is all that is known; if nothing can be read, so be it.
            let _ = pipe.read_to_string(&mut stderr);
        }
        if stderr.trim().is_empty() {
            stderr = match self.child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
        }
        Error::Died { stderr: stderr.trim().to_string() }
    }

    /// The program and the recorded commands that repeat all that this process did, if they are
    /// kept for a debugger.
    pub fn replay(&mut self) -> Option<(PathBuf, PathBuf)> {
        // What cannot be written now cannot be repeated either.
        let _ = self.commands.flush();
        let paths = (self.folder.program(), self.folder.commands(self.number));
        self.options.debug.then_some(paths)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
