//! The report of a plan, for people (text) and for programs (JSON).

use super::json::{array, object, string};
use super::structure::{Group, PairOrder, Structure, Template};
use super::{Kernel, Place, Plan, Verdict};
use crate::ir::ValueId;
use crate::target::REFERENCE;
use std::fmt::Write;

impl Plan {
    /// The report: every kernel with what it computes, moves and costs, and every decision.
    pub fn explain(&self) -> String {
        let mut out = String::new();
        let graph = self.graph();
        let _ = writeln!(
            out,
            "{}  rows {}  kernels {}  scratch {} B  estimate {:.2} us on {}",
            graph.name,
            self.rows(),
            self.n_launches(),
            self.scratch_bytes(),
            self.kernels().iter().map(|kernel| kernel.cost.ns).sum::<f64>() / 1000.0,
            REFERENCE.name,
        );
        for (index, kernel) in self.kernels().iter().enumerate() {
            out.push_str(&self.explain_kernel(index, kernel));
        }
        if !self.decisions().is_empty() {
            out += "decisions\n";
        }
        for decision in self.decisions() {
            let _ = writeln!(out, "  {decision}");
        }
        for note in self.notes() {
            let _ = writeln!(out, "  {note}");
        }
        out
    }

    /// The lines of one kernel.
    pub fn explain_kernel(&self, index: usize, kernel: &Kernel) -> String {
        let mut out = String::new();
        let cost = &kernel.cost;
        let launch = &kernel.launch;
        let _ = writeln!(
            out,
            "{index} {}  {}  grid {} x {}  shared {} B",
            kernel.name,
            template_text(&kernel.structure),
            launch.n_blocks,
            launch.n_threads,
            launch.shared_bytes,
        );
        let _ = writeln!(
            out,
            "    reads {} B  writes {} B  instructions {}  estimate {:.2} us",
            cost.read_bytes,
            cost.write_bytes,
            cost.instructions,
            cost.ns / 1000.0
        );
        let mut list = |what: &str, ids: &[ValueId]| {
            for &id in ids {
                let _ =
                    writeln!(out, "    {what:<9}{}{}", self.graph().line(id), self.place_text(id));
            }
        };
        let anchors = anchors(kernel);
        let beside: Vec<ValueId> = kernel
            .members
            .iter()
            .copied()
            .filter(|id| {
                let structure = &kernel.structure;
                ![&structure.prologue, &structure.epilogue, &anchors].iter().any(|l| l.contains(id))
            })
            .collect();
        list("prologue", &kernel.structure.prologue);
        list("template", &anchors);
        list("beside", &beside);
        let epilogue: Vec<ValueId> =
            kernel.structure.epilogue.iter().copied().filter(|id| !anchors.contains(id)).collect();
        list("epilogue", &epilogue);
        out
    }

    fn place_text(&self, id: ValueId) -> String {
        match self.place(id) {
            Place::None | Place::Arg => String::new(),
            Place::Output(index) => format!("  -> result {index}"),
            Place::Scratch(at) => format!("  -> scratch {at}"),
            Place::Cache(arg) => format!("  -> cache `{}`", self.graph().args[arg].name),
        }
    }

    /// The report as one JSON object.
    pub fn explain_json(&self) -> String {
        let graph = self.graph();
        let ids = |ids: &[ValueId]| array(ids.iter().map(|id| string(&id.to_string())));
        let kernels = self.kernels().iter().map(|kernel| {
            object(&[
                ("name", string(&kernel.name)),
                ("template", string(kernel.structure.template.name())),
                ("members", ids(&kernel.members)),
                ("prologue", ids(&kernel.structure.prologue)),
                ("epilogue", ids(&kernel.structure.epilogue)),
                ("loads", ids(&kernel.loads)),
                ("stores", ids(&kernel.stores)),
                ("read_bytes", kernel.cost.read_bytes.to_string()),
                ("write_bytes", kernel.cost.write_bytes.to_string()),
                ("instructions", kernel.cost.instructions.to_string()),
                ("estimate_ns", format!("{:.1}", kernel.cost.ns)),
                ("n_blocks", kernel.launch.n_blocks.to_string()),
                ("n_threads", kernel.launch.n_threads.to_string()),
                ("shared_bytes", kernel.launch.shared_bytes.to_string()),
            ])
        });
        let decisions = self.decisions().iter().map(|decision| {
            let (verdict, why) = match &decision.verdict {
                Verdict::Fused { rule } => ("fuse", (*rule).to_string()),
                Verdict::View => ("view", String::new()),
                Verdict::Apart(reason) => ("apart", reason.to_string()),
            };
            object(&[
                ("producer", string(&decision.producer.to_string())),
                ("consumer", string(&decision.consumer.to_string())),
                ("verdict", string(verdict)),
                ("why", string(&why)),
            ])
        });
        object(&[
            ("block", string(&graph.name)),
            ("rows", self.rows().to_string()),
            ("target", string(REFERENCE.name)),
            ("scratch_bytes", self.scratch_bytes().to_string()),
            ("kernels", array(kernels)),
            ("decisions", array(decisions)),
            ("notes", array(self.notes().iter().map(|note| string(note)))),
        ])
    }
}

/// The operations that a kernel is built around.
fn anchors(kernel: &Kernel) -> Vec<ValueId> {
    match &kernel.structure.template {
        Template::Pointwise => Vec::new(),
        Template::Rows(rows) => rows.row_ops.clone(),
        Template::Linear(linear) => {
            let segments = linear.groups.iter().flat_map(|group| &group.segments);
            let mut linears: Vec<ValueId> = segments.map(|segment| segment.linear).collect();
            linears.sort_unstable();
            linears.dedup();
            linears
        }
        Template::Attend { anchor } | Template::Gather { anchor } => vec![*anchor],
    }
}

fn template_text(structure: &Structure) -> String {
    match &structure.template {
        Template::Rows(rows) => format!("rows[{} x {}]", rows.n_rows, rows.width),
        Template::Linear(linear) => {
            let groups: Vec<String> = linear.groups.iter().map(group_text).collect();
            format!("linear[{} x {}]{{{}}}", linear.n_rows, linear.k, groups.join(" | "))
        }
        other => other.name().to_string(),
    }
}

fn group_text(group: &Group) -> String {
    let segments: Vec<String> = group
        .segments
        .iter()
        .map(|s| format!("{}[{}..{}]", s.linear, s.start, s.start + group.len))
        .collect();
    let order = match group.order {
        PairOrder::Natural => "",
        PairOrder::Halves { .. } => " in halves",
    };
    format!("{}{order}", segments.join(" + "))
}
