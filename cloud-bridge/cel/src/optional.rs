//! Optional values that the CEL library does not support: `optMap` and `optFlatMap`, and the selection of missing
//! fields.

use std::sync::Arc;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedExpr, operators};
use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

/// The library runs its own selection for the operator's name, so the operator gets another.
pub(crate) const SELECT: &str = "@optional_select";
/// Evaluates its second argument with the value of its first, if it has one.
pub(crate) const MAPS: [&str; 2] = ["optMap", "optFlatMap"];

/// Adds the functions.
pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function(SELECT, select);
    context.add_function(MAPS[0], |call: &FunctionContext| map(call, false));
    context.add_function(MAPS[1], |call: &FunctionContext| map(call, true));
}

/// Gives selections their own function.
pub(crate) fn rename(expr: &mut IdedExpr) {
    match &mut expr.expr {
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| rename(target));
            call.args.iter_mut().for_each(rename);
            if call.func_name == operators::OPT_SELECT {
                SELECT.clone_into(&mut call.func_name);
            }
        }
        Expr::Select(select) => rename(&mut select.operand),
        Expr::List(list) => list.elements.iter_mut().for_each(rename),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                rename(&mut entry.key);
                rename(&mut entry.value);
            }
            EntryExpr::StructField(field) => rename(&mut field.value),
        }),
        Expr::Comprehension(each) => {
            let parts =
                [&mut each.iter_range, &mut each.accu_init, &mut each.loop_cond, &mut each.loop_step, &mut each.result];
            parts.into_iter().for_each(rename);
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

fn made(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

fn select(call: &FunctionContext) -> ResolveResult {
    let [operand, field] = call.args else { return Err(ExecutionError::NoSuchOverload) };
    let (operand, field) = (Cel::resolve(operand, call.ptx)?, Cel::resolve(field, call.ptx)?);
    let Cel::String(field) = field else { return Err(ExecutionError::NoSuchOverload) };
    let held = match &operand {
        Cel::Opaque(_) => <&OptionalValue>::try_from(&operand)?.value(),
        other => Some(other),
    };
    match held {
        None => Ok(made(None)),
        Some(Cel::Map(map)) => Ok(made(map.map.get(&Key::String(field)).cloned())),
        Some(_) => Err(ExecutionError::NoSuchOverload),
    }
}

fn map(call: &FunctionContext, flat: bool) -> ResolveResult {
    let (Some(target), [variable, result]) = (&call.this, call.args) else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let Expr::Ident(variable) = &variable.expr else { return Err(ExecutionError::NoSuchOverload) };
    let Some(held) = <&OptionalValue>::try_from(target)?.value() else { return Ok(made(None)) };
    let mut scope = call.ptx.new_inner_scope();
    scope.add_variable_from_value(variable.as_str(), held.clone());
    let result = Cel::resolve(result, &scope)?;
    Ok(if flat { result } else { made(Some(result)) })
}
