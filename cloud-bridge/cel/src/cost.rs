//! Cost of a rule: a step for each value that it reads, as the API server counts, with loops counted as they run. The
//! CEL library does not count, so each loop's condition is extended to count the steps of one round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

/// What one rule may cost, and all rules on one object (K8s apiserver pkg/apis/cel/config.go).
pub(crate) const PER_RULE: u64 = 1_000_000;
pub(crate) const PER_OBJECT: u64 = 10_000_000;

/// The function that a loop calls in each round.
pub(crate) const COUNT: &str = "@count";

/// Steps counted in one rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Begins a rule.
    pub(crate) fn start(&self, steps: u64) {
        self.0.store(steps, Ordering::Relaxed);
    }

    /// Adds steps; false when they are too many.
    pub(crate) fn add(&self, steps: u64) -> bool {
        self.0.fetch_add(steps, Ordering::Relaxed).saturating_add(steps) <= PER_RULE
    }

    /// Steps since the start.
    pub(crate) fn steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Extends every loop to count its rounds. Returns the steps of the parts that run once.
pub(crate) fn meter(expr: &mut IdedExpr) -> u64 {
    let id = expr.id;
    match &mut expr.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref_mut().map_or(0, meter);
            1 + target + call.args.iter_mut().map(meter).sum::<u64>()
        }
        Expr::Select(select) => 1 + meter(&mut select.operand),
        Expr::List(list) => 10 + list.elements.iter_mut().map(meter).sum::<u64>(),
        Expr::Map(map) => {
            let entry = |entry: &mut EntryExpr| match entry {
                EntryExpr::MapEntry(entry) => meter(&mut entry.key) + meter(&mut entry.value),
                EntryExpr::StructField(field) => meter(&mut field.value),
            };
            30 + map.entries.iter_mut().map(|one| entry(&mut one.expr)).sum::<u64>()
        }
        Expr::Comprehension(each) => {
            let once = meter(&mut each.iter_range) + meter(&mut each.accu_init) + meter(&mut each.result);
            let round = meter(&mut each.loop_cond) + meter(&mut each.loop_step) + 1;
            let steps = Expr::Literal(LiteralValue::Int(i64::try_from(round).unwrap_or(i64::MAX).into()));
            let count = call(id, COUNT, vec![IdedExpr { id, expr: steps }]);
            let condition = std::mem::take(&mut each.loop_cond);
            each.loop_cond = call(id, operators::LOGICAL_AND, vec![count, condition]);
            once + 1
        }
        Expr::Ident(_) => 1,
        Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => 0,
    }
}

pub(crate) fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}
