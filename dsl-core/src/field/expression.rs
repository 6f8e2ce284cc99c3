//! Expressions, counted: every distinct load, number, cast and operation of one element is one
//! operation. What is used twice counts once.

use crate::dtype::DType;
use crate::format::{CodeMap, WeightFormat};
use crate::ir::ValueId;
use std::collections::{BTreeMap, BTreeSet};

/// The size of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Distinct loads, numbers, casts and operations.
    pub n_ops: usize,
    /// Distinct loads.
    pub n_reads: usize,
}

/// What decoding one element of a weight counts, the widening to `f32` of the product included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Its operations.
    pub n_ops: usize,
    /// Its loads.
    pub n_reads: usize,
    /// Whether the weight is numbers in memory, and nothing is computed but a widening.
    pub is_dense: bool,
}

impl Decode {
    /// Of a weight format.
    ///
    /// | step | counts |
    /// |---|---|
    /// | a code of less than 8 bits: load, index of the shift, shift, mask, and | 5 |
    /// | a wider code: load | 1 |
    /// | bias, or a sign: number, operation | 2 (3 for the sign of a nibble) |
    /// | table: load | 1 |
    /// | packed zero point: load, index, shift, and, subtraction | 5 |
    /// | integers to the scale's type: cast | 1 |
    /// | scale: load, product | 2 |
    /// | offset: load, sum | 2 |
    /// | to `f32`: cast | 1 |
    pub fn of(format: &WeightFormat) -> Decode {
        let packed = format.bits < 8;
        let (mut n_ops, mut n_reads) = if packed { (5, 1) } else { (1, 1) };
        let is_integer = match &format.code {
            CodeMap::Float(_) => false,
            CodeMap::Unsigned { bias } => {
                n_ops += if *bias == 0 { 0 } else { 2 };
                true
            }
            CodeMap::Signed => {
                n_ops += if packed { 3 } else { 0 };
                true
            }
            CodeMap::Codebook(_) => {
                (n_ops, n_reads) = (n_ops + 1, n_reads + 1);
                false
            }
        };
        let mut narrow = matches!(format.code, CodeMap::Float(dtype) if dtype != DType::F32);
        if let Some(group) = format.group {
            (n_ops, n_reads) = (n_ops + usize::from(is_integer) + 2, n_reads + 1);
            if group.offset.is_some() {
                (n_ops, n_reads) = (n_ops + 2, n_reads + 1);
            }
            narrow = group.scale != DType::F32;
        }
        let is_dense = format.group.is_none() && matches!(format.code, CodeMap::Float(_));
        Decode { n_ops: n_ops + usize::from(narrow), n_reads, is_dense }
    }
}

/// A node of an expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    /// An element of a buffer, through views.
    Load { buffer: Buffer, view: usize },
    /// A number.
    Number { bits: u32, dtype: Kind },
    /// A cast, or an operation.
    Op { name: &'static str, operands: Vec<usize> },
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Buffer {
    /// A value of the graph.
    Value(ValueId),
    /// The n-th number a row that an operation's reduction leaves.
    RowResult(ValueId, usize),
}

/// An element type, ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Floating point of 32 bits.
    F32,
    /// Narrower floating point.
    F16,
    /// Narrower floating point.
    BF16,
    /// Integers.
    I32,
}

impl Kind {
    pub fn of(dtype: DType) -> Kind {
        match dtype {
            DType::F32 => Kind::F32,
            DType::F16 => Kind::F16,
            DType::BF16 => Kind::BF16,
            DType::I32 => Kind::I32,
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Kind::F32 | Kind::I32 => 4,
            Kind::F16 | Kind::BF16 => 2,
        }
    }

    /// The type of an operation on both.
    pub fn promoted(self, other: Kind) -> Kind {
        if self == other { self } else { Kind::F32 }
    }
}

/// An expression of one element, with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub node: usize,
    pub kind: Kind,
    /// Whether it is a number, which takes the type of its neighbours.
    pub number: Option<u32>,
}

/// All nodes so far, each once.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    known: BTreeMap<Node, usize>,
}

impl Nodes {
    fn add(&mut self, node: Node) -> usize {
        if let Some(&index) = self.known.get(&node) {
            return index;
        }
        self.nodes.push(node.clone());
        self.known.insert(node, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    pub fn load(&mut self, buffer: Buffer, view: usize, kind: Kind) -> Term {
        Term { node: self.add(Node::Load { buffer, view }), kind, number: None }
    }

    pub fn number(&mut self, value: f32, kind: Kind) -> Term {
        let bits = value.to_bits();
        Term { node: self.add(Node::Number { bits, dtype: kind }), kind, number: Some(bits) }
    }

    /// An operation whose operands are of one type already.
    pub fn op(&mut self, name: &'static str, operands: &[Term]) -> Term {
        let kind = operands.first().map_or(Kind::F32, |term| term.kind);
        let operands = operands.iter().map(|term| term.node).collect();
        Term { node: self.add(Node::Op { name, operands }), kind, number: None }
    }

    /// Operands brought to their common type; numbers take it for free.
    pub fn promoted(&mut self, terms: &[Term]) -> Vec<Term> {
        let kinds = terms.iter().filter(|term| term.number.is_none()).map(|term| term.kind);
        let kind = kinds.reduce(Kind::promoted).unwrap_or(Kind::F32);
        terms.iter().map(|&term| self.cast(term, kind)).collect()
    }

    /// A cast, which counts unless the type stays.
    pub fn cast(&mut self, term: Term, kind: Kind) -> Term {
        match term.number {
            Some(bits) => self.number(f32::from_bits(bits), kind),
            None if term.kind == kind => term,
            None => {
                let name = match kind {
                    Kind::F32 => "to f32",
                    Kind::F16 => "to f16",
                    Kind::BF16 => "to bf16",
                    Kind::I32 => "to i32",
                };
                Term { kind, ..self.op(name, &[term]) }
            }
        }
    }

    /// What expressions count together.
    pub fn counts(&self, terms: &[Term]) -> Counts {
        let mut seen = BTreeSet::new();
        let mut todo: Vec<usize> = terms.iter().map(|term| term.node).collect();
        let mut counts = Counts::default();
        while let Some(index) = todo.pop() {
            if !seen.insert(index) {
                continue;
            }
            counts.n_ops += 1;
            match &self.nodes[index] {
                Node::Load { .. } => counts.n_reads += 1,
                Node::Number { .. } => {}
                Node::Op { operands, .. } => todo.extend(operands),
            }
        }
        counts
    }
}
