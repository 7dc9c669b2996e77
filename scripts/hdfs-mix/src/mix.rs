//! What both drivers do, and in which order.

#[path = "../../../crates/bench/src/metadata/mix/plan.rs"]
pub mod plan;
#[path = "../../../crates/bench/src/metadata/mix/run.rs"]
pub mod run;
