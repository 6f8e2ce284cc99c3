//! The text form of a graph. One value a line:
//!
//! ```text
//! block mlp
//! batch B 1..=16
//! arg %0 x input f32[B<=16, D:576]
//! arg %1 norm weight f32[D:576]
//! arg %2 up weight Q4_1{F:1536, D:576}
//! %3 h = rms_norm %0 %1 eps=0.00001 : f32[B<=16, D:576]
//! %4 = linear %3 %2 : f32[B<=16, F:1536]
//! %5 = silu %4 : f32[B<=16, F:1536] !materialize
//! return %5
//! ```
//!
//! A dim is `size`, `label:size`, or `label<=size` for the batch dim. A name follows the id.
//! A pin ([`Pin`]) follows the type. A format that is not built in has a line of its own before the arguments. Comments begin with
//! `;`.

use super::dim::{Dim, Shape};
use super::{Batch, Graph, Op, Pairing, Pin, Pointwise, Reduction, Role, Type, ValueId};
use crate::dtype::DType;
use crate::format::{self, CodeMap, Group, WeightFormat};
use std::fmt::{self, Write};
use std::sync::Arc;

/// A line that is not of the text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What was expected and found.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "block {}", self.name)?;
        if let Some(batch) = &self.batch {
            writeln!(f, "batch {} {}..={}", batch.name, batch.min, batch.max)?;
        }
        for format in self.declared_formats() {
            writeln!(f, "format {}", show_format(&format))?;
        }
        for arg in &self.args {
            let (id, name, role) = (arg.value, &arg.name, arg.role.name());
            let value = &self[id];
            writeln!(f, "arg {id} {name} {role} {}{}", show_type(&value.ty), show_pin(value.pin))?;
        }
        for id in self.ids().filter(|&id| self[id].op != Op::Arg) {
            writeln!(f, "{}", self.line(id))?;
        }
        let outputs: Vec<String> = self.outputs.iter().map(|output| format!(" {output}")).collect();
        writeln!(f, "return{}", outputs.concat())
    }
}

impl Graph {
    /// The text form.
    pub fn to_text(&self) -> String {
        self.to_string()
    }

    /// The text form of one value.
    pub fn line(&self, id: ValueId) -> String {
        let value = &self[id];
        let mut line = id.to_string();
        if let Some(name) = &value.name {
            line += &format!(" {name}");
        }
        line += &format!(" = {}", value.op.name());
        for input in &value.inputs {
            line += &format!(" {input}");
        }
        for (key, text) in attributes(&value.op) {
            line += &format!(" {key}={text}");
        }
        line + " : " + &show_type(&value.ty) + &show_pin(value.pin)
    }

    /// Reads the text form. The graph is not verified yet.
    ///
    /// # Errors
    /// The first line that is not of the text form.
    pub fn parse(text: &str) -> Result<Graph, ParseError> {
        let mut graph = Graph::default();
        let mut formats: Vec<Arc<WeightFormat>> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split(';').next().unwrap_or("").trim();
            if !line.is_empty() {
                parse_line(&mut graph, &mut formats, line)
                    .map_err(|message| ParseError { line: number, message })?;
            }
        }
        Ok(graph)
    }
}

type Parsed<T> = Result<T, String>;

fn parse_line(graph: &mut Graph, formats: &mut Vec<Arc<WeightFormat>>, line: &str) -> Parsed<()> {
    let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
    match head {
        "block" => graph.name = rest.trim().to_string(),
        "batch" => {
            let (name, range) = rest.split_once(' ').ok_or("expected `batch NAME MIN..=MAX`")?;
            let (min, max) = range.split_once("..=").ok_or("expected `MIN..=MAX`")?;
            graph.batch =
                Some(Batch { name: Arc::from(name), min: number(min)?, max: number(max)? });
        }
        "format" => formats.push(Arc::new(parse_format(rest)?)),
        "arg" => {
            let mut words = rest.splitn(4, ' ');
            let mut next = || words.next().ok_or("expected `arg %N NAME ROLE TYPE`");
            let (id, name, role, ty) = (next()?, next()?, next()?, next()?);
            expect_next_id(graph, id)?;
            let role = [Role::Input, Role::Weight, Role::Cache]
                .into_iter()
                .find(|r| r.name() == role)
                .ok_or_else(|| format!("expected a role, found `{role}`"))?;
            let (ty, pin) = split_pin(ty)?;
            let value = graph.arg(name, role, parse_type(ty, formats)?);
            graph.set_pin(value, pin);
        }
        "return" => {
            for word in rest.split_whitespace() {
                let output = parse_id(word)?;
                known(graph, output)?;
                graph.outputs.push(output);
            }
        }
        _ => parse_value(graph, formats, line)?,
    }
    Ok(())
}

fn parse_value(graph: &mut Graph, formats: &[Arc<WeightFormat>], line: &str) -> Parsed<()> {
    let (left, right) = line.split_once(" = ").ok_or_else(|| format!("unknown line `{line}`"))?;
    let (right, ty) = right.rsplit_once(" : ").ok_or("expected ` : TYPE`")?;
    let (id, name) = left.split_once(' ').map_or((left, None), |(id, name)| (id, Some(name)));
    expect_next_id(graph, id)?;
    let mut words = right.split(' ').filter(|word| !word.is_empty()).peekable();
    let op_name = words.next().ok_or("expected an operation")?;
    let mut inputs = Vec::new();
    while let Some(word) = words.next_if(|word| word.starts_with('%')) {
        let input = parse_id(word)?;
        known(graph, input)?;
        inputs.push(input);
    }
    let rest = words.collect::<Vec<_>>().join(" ");
    let attributes = split_attributes(&rest)?;
    let op = parse_op(op_name, &attributes)?;
    let (ty, pin) = split_pin(ty)?;
    let ty = parse_type(ty, formats)?;
    let value = graph.add(op, inputs, ty, name.map(Arc::from));
    graph.set_pin(value, pin);
    Ok(())
}

fn attributes(op: &Op) -> Vec<(&'static str, String)> {
    match op {
        Op::Const(value) => vec![("value", format!("{value:?}"))],
        Op::Cast(dtype) => vec![("dtype", dtype.to_string())],
        Op::RmsNorm { eps } | Op::LayerNorm { eps } => vec![("eps", format!("{eps:?}"))],
        Op::Slice { start, len } => {
            vec![("start", start.to_string()), ("len", show_dim(len))]
        }
        Op::Reshape { shape } => vec![("shape", show_shape(shape))],
        Op::Rope { pairing, base, rotary } => vec![
            ("pairing", pairing.name().to_string()),
            ("base", format!("{base:?}")),
            ("rotary", rotary.to_string()),
        ],
        Op::Attend { scale, window, softcap, sinks, operand } => {
            let mut list = vec![("scale", format!("{scale:?}"))];
            list.extend(window.map(|window| ("window", window.to_string())));
            list.extend(softcap.map(|softcap| ("softcap", format!("{softcap:?}"))));
            list.extend(sinks.then(|| ("sinks", "true".to_string())));
            list.extend((*operand != DType::F32).then(|| ("operand", operand.to_string())));
            list
        }
        Op::Arg
        | Op::Pointwise(_)
        | Op::Reduce(_)
        | Op::Softmax
        | Op::Argmax
        | Op::Linear
        | Op::Append
        | Op::Embed
        | Op::Dequantize => Vec::new(),
    }
}

/// `key=value` pairs; a value in brackets may hold spaces.
fn split_attributes(text: &str) -> Parsed<Vec<(&str, &str)>> {
    let mut list = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, tail) = rest.split_once('=').ok_or("expected `key=value`")?;
        // A dim's label may hold spaces and brackets, so a value ends where the next key begins.
        let mut end = tail.len();
        for (at, _) in tail.match_indices(' ') {
            let next = tail[at + 1..].split_once('=').map(|(key, _)| key);
            let is_key = |key: &str| {
                !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            };
            if next.is_some_and(is_key) && !tail[..at].ends_with('<') {
                end = at;
                break;
            }
        }
        list.push((key.trim(), tail[..end].trim()));
        rest = tail[end..].trim_start();
    }
    Ok(list)
}

fn parse_op(name: &str, attributes: &[(&str, &str)]) -> Parsed<Op> {
    let find = |key: &str| attributes.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let need = |key: &str| find(key).ok_or_else(|| format!("`{name}` needs `{key}`"));
    Ok(match name {
        "const" => Op::Const(float(need("value")?)? as f32),
        "to" => Op::Cast(parse_dtype(need("dtype")?)?),
        "softmax" => Op::Softmax,
        "argmax" => Op::Argmax,
        "rms_norm" => Op::RmsNorm { eps: float(need("eps")?)? as f32 },
        "layer_norm" => Op::LayerNorm { eps: float(need("eps")?)? as f32 },
        "linear" => Op::Linear,
        "slice" => Op::Slice { start: number(need("start")?)?, len: parse_dim(need("len")?)? },
        "reshape" => Op::Reshape { shape: parse_shape(need("shape")?)? },
        "rope" => {
            let pairing = need("pairing")?;
            Op::Rope {
                pairing: Pairing::ALL
                    .into_iter()
                    .find(|p| p.name() == pairing)
                    .ok_or_else(|| format!("unknown pairing `{pairing}`"))?,
                base: float(need("base")?)?,
                rotary: number(need("rotary")?)?,
            }
        }
        "append" => Op::Append,
        "attend" => Op::Attend {
            scale: float(need("scale")?)? as f32,
            window: find("window").map(number).transpose()?,
            softcap: find("softcap").map(float).transpose()?.map(|cap| cap as f32),
            sinks: find("sinks") == Some("true"),
            operand: find("operand").map_or(Ok(DType::F32), parse_dtype)?,
        },
        "embed" => Op::Embed,
        "dequantize" => Op::Dequantize,
        _ => {
            let reduction = Reduction::ALL.into_iter().find(|r| r.row_name() == name);
            match (Pointwise::from_name(name), reduction) {
                (Some(op), _) => Op::Pointwise(op),
                (None, Some(reduction)) => Op::Reduce(reduction),
                (None, None) => return Err(format!("unknown operation `{name}`")),
            }
        }
    })
}

fn show_dim(dim: &Dim) -> String {
    match (dim.batch, dim.label.is_empty()) {
        (true, _) => format!("{}<={}", dim.label, dim.size),
        (false, false) => format!("{}:{}", dim.label, dim.size),
        (false, true) => dim.size.to_string(),
    }
}

fn parse_dim(text: &str) -> Parsed<Dim> {
    let text = text.trim();
    if let Some((label, size)) = text.rsplit_once("<=") {
        return Ok(Dim::batch(number(size)?, label));
    }
    match text.rsplit_once(':') {
        Some((label, size)) => Ok(Dim::named(number(size)?, label)),
        None => Ok(Dim::literal(number(text)?)),
    }
}

fn show_shape(shape: &[Dim]) -> String {
    let dims: Vec<String> = shape.iter().map(show_dim).collect();
    format!("[{}]", dims.join(", "))
}

fn parse_dims(text: &str) -> Parsed<Shape> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(parse_dim).collect()
}

fn parse_shape(text: &str) -> Parsed<Shape> {
    let inner = text.trim().strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    parse_dims(inner.ok_or_else(|| format!("expected `[dims]`, found `{text}`"))?)
}

fn show_type(ty: &Type) -> String {
    match ty {
        Type::Tensor { dtype, shape } => format!("{dtype}{}", show_shape(shape)),
        Type::Weight { format, n, k } => {
            format!("{}{{{}, {}}}", format.name, show_dim(n), show_dim(k))
        }
        Type::Cache { dtype, batch, kv_heads, head_dim, capacity } => {
            let dims = [batch, kv_heads, head_dim, capacity].map(|d| (*d).clone());
            format!("cache {dtype}{}", show_shape(&dims))
        }
        Type::Index { rows } => format!("index[{}]", show_dim(rows)),
    }
}

fn parse_type(text: &str, formats: &[Arc<WeightFormat>]) -> Parsed<Type> {
    let text = text.trim();
    let bad = || format!("expected a type, found `{text}`");
    if let Some(cache) = text.strip_prefix("cache ") {
        let (dtype, dims) = cache.split_at(cache.find('[').ok_or_else(bad)?);
        let [batch, kv_heads, head_dim, capacity]: [Dim; 4] =
            parse_shape(dims)?.try_into().map_err(|_| bad())?;
        let dtype = parse_dtype(dtype)?;
        return Ok(Type::Cache { dtype, batch, kv_heads, head_dim, capacity });
    }
    if let Some(dims) = text.strip_prefix("index") {
        let [rows]: [Dim; 1] = parse_shape(dims)?.try_into().map_err(|_| bad())?;
        return Ok(Type::Index { rows });
    }
    if let Some((name, dims)) = text.split_once('{') {
        let dims = dims.strip_suffix('}').ok_or_else(bad)?;
        let [n, k]: [Dim; 2] = parse_dims(dims)?.try_into().map_err(|_| bad())?;
        let declared = formats.iter().find(|format| format.name == name).cloned();
        let format = declared
            .or_else(|| format::builtin(name).map(|format| Arc::new(format.clone())))
            .ok_or_else(|| format!("unknown format `{name}`"))?;
        return Ok(Type::Weight { format, n, k });
    }
    let (dtype, dims) = text.split_at(text.find('[').ok_or_else(bad)?);
    Ok(Type::tensor(parse_dtype(dtype)?, parse_shape(dims)?))
}

fn show_pin(pin: Option<Pin>) -> String {
    pin.map_or(String::new(), |pin| format!(" !{}", pin.name()))
}

/// The type's text, and the pin after it.
fn split_pin(text: &str) -> Parsed<(&str, Option<Pin>)> {
    let Some((ty, name)) = text.split_once('!') else { return Ok((text, None)) };
    match Pin::ALL.into_iter().find(|pin| pin.name() == name.trim()) {
        Some(pin) => Ok((ty, Some(pin))),
        None => Err(format!("expected `!materialize` or `!inline`, found `!{name}`")),
    }
}

fn show_format(format: &WeightFormat) -> String {
    let code = match &format.code {
        CodeMap::Float(dtype) => format!("float({dtype})"),
        CodeMap::Unsigned { bias } => format!("unsigned({bias})"),
        CodeMap::Signed => "signed()".to_string(),
        CodeMap::Codebook(values) => {
            let values: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
            format!("codebook({})", values.join(","))
        }
    };
    let mut text = format!("{} bits={} code={code}", format.name, format.bits);
    if let Some(group) = format.group {
        let _ = write!(text, " group={} scale={}", group.size, group.scale);
        if let Some(offset) = group.offset {
            let _ = write!(text, " offset={offset}");
        }
    }
    text
}

fn parse_format(text: &str) -> Parsed<WeightFormat> {
    let (name, rest) = text.split_once(' ').ok_or("expected `format NAME key=value …`")?;
    let attributes = split_attributes(rest)?;
    let find = |key: &str| attributes.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let code = find("code").ok_or("a format needs `code`")?;
    let (map, argument) = code
        .strip_suffix(')')
        .and_then(|code| code.split_once('('))
        .ok_or_else(|| format!("expected `map(…)`, found `{code}`"))?;
    let code = match map {
        "float" => CodeMap::Float(parse_dtype(argument)?),
        "unsigned" => CodeMap::Unsigned { bias: argument.parse().map_err(|_| "expected a bias")? },
        "signed" => CodeMap::Signed,
        "codebook" => {
            let values: Parsed<Vec<f32>> =
                argument.split(',').map(|v| float(v).map(|v| v as f32)).collect();
            CodeMap::Codebook(values?.into())
        }
        _ => return Err(format!("unknown code map `{map}`")),
    };
    let group = match find("group") {
        None => None,
        Some(size) => Some(Group {
            size: number(size)?,
            scale: parse_dtype(find("scale").ok_or("a group needs `scale`")?)?,
            offset: find("offset").map(parse_dtype).transpose()?,
        }),
    };
    let bits = number(find("bits").ok_or("a format needs `bits`")?)?;
    let bits = u8::try_from(bits).map_err(|_| format!("codes of {bits} bits"))?;
    let format = WeightFormat { name: name.to_string().into(), bits, code, group, gguf: None };
    format.check()?;
    Ok(format)
}

fn parse_dtype(name: &str) -> Parsed<DType> {
    DType::from_name(name.trim()).ok_or_else(|| format!("unknown element type `{name}`"))
}

fn parse_id(word: &str) -> Parsed<ValueId> {
    let id = word.strip_prefix('%').and_then(|digits| digits.parse().ok());
    id.map(ValueId).ok_or_else(|| format!("expected a value, found `{word}`"))
}

fn known(graph: &Graph, id: ValueId) -> Parsed<()> {
    let defined = id.index() < graph.values.len();
    if defined { Ok(()) } else { Err(format!("{id} is not defined yet")) }
}

fn expect_next_id(graph: &Graph, word: &str) -> Parsed<()> {
    let next = ValueId(graph.values.len() as u32);
    if parse_id(word)? == next { Ok(()) } else { Err(format!("expected {next}, found {word}")) }
}

fn number(text: &str) -> Parsed<usize> {
    text.trim().parse().map_err(|_| format!("expected a number, found `{text}`"))
}

fn float(text: &str) -> Parsed<f64> {
    text.trim().parse().map_err(|_| format!("expected a number, found `{text}`"))
}
