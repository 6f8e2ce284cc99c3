//! The text of each pointwise operation.

use fuseline_core::ir::Pointwise;

/// The expression for `op` on the operands `x`.
pub fn pointwise_text(op: Pointwise, x: &[String]) -> String {
    let infix = |sign: &str| format!("{} {sign} {}", x[0], x[1]);
    let test = |sign: &str| format!("{} {sign} {} ? 1.0f : 0.0f", x[0], x[1]);
    let call = |name: &str| format!("{name}({})", x.join(", "));
    match op {
        Pointwise::Add => infix("+"),
        Pointwise::Sub => infix("-"),
        Pointwise::Mul => infix("*"),
        Pointwise::Div => call("fl_div"),
        Pointwise::Min => call("fl_min"),
        Pointwise::Max => call("fl_max"),
        Pointwise::Lt => test("<"),
        Pointwise::Le => test("<="),
        Pointwise::Gt => test(">"),
        Pointwise::Ge => test(">="),
        Pointwise::Eq => test("=="),
        Pointwise::Ne => test("!="),
        // Two signs in a row would be another operator.
        Pointwise::Neg if x[0].starts_with('-') => format!("-({})", x[0]),
        Pointwise::Neg => format!("-{}", x[0]),
        Pointwise::Exp => call("fl_exp"),
        Pointwise::Log => call("fl_log"),
        Pointwise::Silu => call("fl_silu"),
        Pointwise::GeluTanh => call("fl_gelu_tanh"),
        Pointwise::GeluErf => call("fl_gelu_erf"),
        Pointwise::Sigmoid => call("fl_sigmoid"),
        Pointwise::Tanh => call("fl_tanh"),
        Pointwise::Relu => call("fl_relu"),
        Pointwise::Recip => call("fl_recip"),
        Pointwise::Round => call("fl_round"),
        Pointwise::Sqrt => call("fl_sqrt"),
        Pointwise::Rsqrt => call("fl_rsqrt"),
        Pointwise::Softcap => call("fl_softcap"),
        Pointwise::Clamp => call("fl_clamp"),
        Pointwise::Select => format!("{} != 0.0f ? {} : {}", x[0], x[1], x[2]),
    }
}

/// A number as C++ text with the same bits.
pub fn float_text(value: f32) -> String {
    if value.is_finite() {
        format!("{value:?}f")
    } else {
        format!("fl_from_bits(0x{:08x}u)", value.to_bits())
    }
}
