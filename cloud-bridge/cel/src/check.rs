//! Whether a rule names what there is, with the types that it has: what cel-go's checker refuses, the CEL library would
//! find out only when the rule runs.

use std::rc::Rc;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use crate::cost::COUNT;
use crate::functions::{Functions, NAMESPACES, Overload};
use crate::optional::{MAPS, SELECT};
use crate::types::Type;

/// Result of a check.
pub(crate) struct Checked {
    pub(crate) result: Type,
    pub(crate) errors: Vec<String>,
    pub(crate) uses_old: bool,
}

/// Checks an expression against the types of its variables.
pub(crate) fn check(expr: &IdedExpr, source: &str, variables: Vec<(String, Type)>, functions: &Functions) -> Checked {
    let mut checker = Checker { functions, source, variables, errors: Vec::new(), uses_old: false };
    let result = checker.expr(expr);
    Checked { result, errors: checker.errors, uses_old: checker.uses_old }
}

struct Checker<'a> {
    functions: &'a Functions,
    source: &'a str,
    variables: Vec<(String, Type)>,
    errors: Vec<String>,
    uses_old: bool,
}

impl Checker<'_> {
    /// Adds an error at the first position of `word`.
    fn wrong(&mut self, word: &str, text: &str) -> Type {
        self.wrong_at(find_word(self.source, word), text)
    }

    /// Adds an error about the selection of a field: it is at the point, of `has()` at the bracket.
    fn wrong_field(&mut self, field: &str, test: bool, text: &str) -> Type {
        let before = find_word(self.source, field).and_then(|at| self.source.get(..at));
        let place = match before {
            Some(before) if test => before.rfind('('),
            Some(before) => before.rfind('.'),
            None => None,
        };
        self.wrong_at(place, text)
    }

    /// Adds an error about a call: it is at the bracket.
    fn wrong_call(&mut self, word: &str, text: &str) -> Type {
        let named = find_word(self.source, word);
        let open = named.and_then(|at| Some(at + self.source.get(at..)?.find('(')?));
        self.wrong_at(open.or(named), text)
    }

    fn wrong_at(&mut self, place: Option<usize>, text: &str) -> Type {
        let error = located(self.source, place, text);
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
        Type::Dyn
    }

    fn expr(&mut self, expr: &IdedExpr) -> Type {
        match &expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::String,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let operand = self.expr(&select.operand);
                let found = self.select(&operand, &select.field, select.test);
                if select.test { Type::Bool } else { found }
            }
            Expr::List(list) => {
                let items: Vec<Type> = list.elements.iter().map(|item| self.expr(item)).collect();
                Type::List(Rc::new(items.iter().fold(Type::Dyn, |all, item| all.join(item))))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (Type::Dyn, Type::Dyn);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        keys = keys.join(&self.expr(&entry.key));
                        values = values.join(&self.expr(&entry.value));
                    }
                }
                Type::Map(Rc::new(keys), Rc::new(values))
            }
            Expr::Comprehension(each) => self.comprehension(each),
            Expr::Call(call) => self.call(call),
            Expr::Struct(made) => {
                self.wrong(&made.type_name, &format!("undeclared reference to '{}' (in container '')", made.type_name))
            }
            Expr::Unspecified => Type::Dyn,
        }
    }

    fn variable(&mut self, name: &str) -> Type {
        self.uses_old |= name == "oldSelf";
        match self.variables.iter().rev().find(|(known, _)| known == name) {
            Some((_, found)) => found.clone(),
            None => self.wrong(name, &format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, operand: &Type, field: &str, test: bool) -> Type {
        match operand {
            Type::Dyn => Type::Dyn,
            Type::Map(_, value) => value.as_ref().clone(),
            Type::Object(fields) => match fields.get(field) {
                Some(found) => found.clone(),
                None => self.wrong_field(field, test, &format!("undefined field '{field}'")),
            },
            Type::Optional(inner) => Type::Optional(Rc::new(self.select(inner, field, test))),
            other => self.wrong_field(field, test, &format!("type '{other}' does not support field selection")),
        }
    }

    fn comprehension(&mut self, each: &ComprehensionExpr) -> Type {
        let item = match self.expr(&each.iter_range) {
            Type::List(item) => item.as_ref().clone(),
            Type::Map(key, _) => key.as_ref().clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.wrong(&each.iter_var, &text)
            }
        };
        let start = self.expr(&each.accu_init);
        let depth = self.variables.len();
        self.variables.push((each.accu_var.clone(), start.clone()));
        self.variables.push((each.iter_var.clone(), item));
        self.expr(&each.loop_cond);
        let step = self.expr(&each.loop_step);
        let result = start.join(&step);
        self.variables.push((each.accu_var.clone(), result));
        let result = self.expr(&each.result);
        self.variables.truncate(depth);
        result
    }

    fn call(&mut self, call: &CallExpr) -> Type {
        if call.func_name == COUNT {
            return Type::Bool;
        }
        if let Some(Expr::Ident(space)) = call.target.as_deref().map(|target| &target.expr)
            && NAMESPACES.contains(&space.as_str())
            && !self.variables.iter().any(|(known, _)| known == space)
        {
            let name = format!("{space}.{}", call.func_name);
            return self.function(&name, &call.func_name, None, &call.args);
        }
        let receiver = call.target.as_deref().map(|target| self.expr(target));
        if let (Some(optional), true, [variable, result]) =
            (&receiver, MAPS.contains(&call.func_name.as_str()), call.args.as_slice())
        {
            return self.optional_map(&call.func_name, optional, variable, result);
        }
        if receiver.is_none()
            && let Some(found) = self.operator(&call.func_name, &call.args)
        {
            return found;
        }
        self.function(&call.func_name, &call.func_name, receiver, &call.args)
    }

    fn optional_map(&mut self, name: &str, optional: &Type, variable: &IdedExpr, result: &IdedExpr) -> Type {
        let inner = match optional {
            Type::Optional(inner) => inner.as_ref().clone(),
            Type::Dyn => Type::Dyn,
            other => return self.no_overload(name, name, Some(other), &[]),
        };
        let Expr::Ident(variable) = &variable.expr else {
            return self.wrong(name, &format!("{name}() variable name must be a simple identifier"));
        };
        self.variables.push((variable.clone(), inner));
        let result = self.expr(result);
        self.variables.pop();
        if name == MAPS[0] { Type::Optional(Rc::new(result)) } else { result }
    }

    fn function(&mut self, name: &str, word: &str, receiver: Option<Type>, arguments: &[IdedExpr]) -> Type {
        let given: Vec<Type> = arguments.iter().map(|argument| self.expr(argument)).collect();
        let functions = self.functions;
        let Some(overloads) = functions.get(name) else {
            return self.wrong_call(word, &format!("undeclared reference to '{name}' (in container '')"));
        };
        let mut results = overloads.iter().filter_map(|one| fits(one, receiver.as_ref(), &given));
        match (results.next(), results.next()) {
            (Some(only), None) => only,
            // Of a value that is known only when the rule runs, the result is, too.
            (Some(first), Some(second)) => results.fold(same(&first, &second), |all, one| same(&all, &one)),
            (None, _) => self.no_overload(word, name, receiver.as_ref(), &given),
        }
    }

    fn no_overload(&mut self, word: &str, name: &str, receiver: Option<&Type>, given: &[Type]) -> Type {
        let given: Vec<String> = given.iter().map(Type::to_string).collect();
        let receiver = receiver.map(|one| format!("{one}.")).unwrap_or_default();
        let text = format!("found no matching overload for '{name}' applied to '{receiver}({})'", given.join(", "));
        // The position of an operator is that of its sign.
        if name.contains(['_', '@']) { self.wrong(word, &text) } else { self.wrong_call(word, &text) }
    }

    /// Type of an operator's result; `None` if the name is not an operator.
    fn operator(&mut self, name: &str, arguments: &[IdedExpr]) -> Option<Type> {
        if !name.contains(['_', '@']) {
            return None;
        }
        let given: Vec<Type> = arguments.iter().map(|argument| self.expr(argument)).collect();
        let bool = |one: &Type| matches!(one, Type::Bool | Type::Dyn);
        let found = match (name, given.as_slice()) {
            (operators::CONDITIONAL, [condition, a, b]) => bool(condition).then(|| a.join(b)),
            (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => (bool(a) && bool(b)).then_some(Type::Bool),
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [a]) => bool(a).then_some(Type::Bool),
            (operators::EQUALS | operators::NOT_EQUALS, [a, b]) => a.comparable(b).then_some(Type::Bool),
            (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [a, b]) => {
                a.ordered(b).then_some(Type::Bool)
            }
            (operators::IN, [item, container]) => match container {
                Type::Dyn => Some(Type::Bool),
                Type::List(inner) | Type::Map(inner, _) => inner.comparable(item).then_some(Type::Bool),
                _ => None,
            },
            (operators::INDEX | operators::OPT_INDEX, [container, index]) => {
                let found = indexed(container, index);
                let optional =
                    |one: Type| if matches!(one, Type::Optional(_)) { one } else { Type::Optional(Rc::new(one)) };
                if name == operators::OPT_INDEX { found.map(optional) } else { found }
            }
            (SELECT, [operand, _]) => {
                let field = match arguments.get(1).map(|field| &field.expr) {
                    Some(Expr::Literal(LiteralValue::String(field))) => field.inner().to_owned(),
                    _ => String::new(),
                };
                let found = self.select(operand, &field, false);
                Some(if matches!(found, Type::Optional(_)) { found } else { Type::Optional(Rc::new(found)) })
            }
            (operators::NEGATE, [one]) => matches!(one, Type::Int | Type::Double | Type::Dyn).then(|| one.clone()),
            (_, [a, b]) => arithmetic(name, a, b),
            _ => None,
        };
        Some(match found {
            Some(found) => found,
            None => {
                let sign = name.trim_matches(['_', '@']);
                let first = if name == operators::CONDITIONAL { "?" } else { sign.trim_end_matches("_]") };
                self.no_overload(first, name, None, &given)
            }
        })
    }
}

fn same(a: &Type, b: &Type) -> Type {
    if a == b { a.clone() } else { Type::Dyn }
}

fn fits(overload: &Overload, receiver: Option<&Type>, given: &[Type]) -> Option<Type> {
    let mut bound = None;
    let receives = match (&overload.receiver, receiver) {
        (Some(wanted), Some(given)) => wanted.takes(given, &mut bound),
        (None, None) => true,
        _ => false,
    };
    let fitting = receives
        && overload.arguments.len() == given.len()
        && overload.arguments.iter().zip(given).all(|(wanted, given)| wanted.takes(given, &mut bound));
    fitting.then(|| overload.result.with(bound.as_ref()))
}

fn indexed(container: &Type, index: &Type) -> Option<Type> {
    match container {
        Type::Dyn => Some(Type::Dyn),
        Type::List(item) => matches!(index, Type::Int | Type::Dyn).then(|| item.as_ref().clone()),
        Type::Map(key, value) => key.comparable(index).then(|| value.as_ref().clone()),
        Type::Optional(inner) => indexed(inner, index).map(|found| Type::Optional(Rc::new(found))),
        _ => None,
    }
}

fn arithmetic(name: &str, a: &Type, b: &Type) -> Option<Type> {
    use Type::{Bytes, Double, Duration, Dyn, Int, List, String, Timestamp, Uint};
    Some(match (name, a, b) {
        (_, Dyn, Dyn) => Dyn,
        (operators::ADD, Dyn, other) | (operators::ADD, other, Dyn) => match other {
            Timestamp | Duration => Dyn,
            Int | Uint | Double | String | Bytes | List(_) => other.clone(),
            _ => return None,
        },
        (_, Dyn, other @ (Int | Uint | Double)) | (_, other @ (Int | Uint | Double), Dyn) => other.clone(),
        (operators::SUBSTRACT, Dyn, Timestamp | Duration) | (operators::SUBSTRACT, Timestamp | Duration, Dyn) => Dyn,
        (operators::MODULO, Int, Int) => Int,
        (operators::MODULO, Uint, Uint) => Uint,
        (operators::MODULO, ..) => return None,
        (_, Int, Int) => Int,
        (_, Uint, Uint) => Uint,
        (_, Double, Double) => Double,
        (operators::ADD, String, String) => String,
        (operators::ADD, Bytes, Bytes) => Bytes,
        (operators::ADD, List(one), List(other)) if one.comparable(other) => a.join(b),
        (operators::ADD | operators::SUBSTRACT, Duration, Duration) => Duration,
        (operators::ADD, Timestamp, Duration) | (operators::ADD, Duration, Timestamp) => Timestamp,
        (operators::SUBSTRACT, Timestamp, Duration) => Timestamp,
        (operators::SUBSTRACT, Timestamp, Timestamp) => Duration,
        _ => return None,
    })
}

/// First position of a word on its own; the CEL library does not keep positions.
fn find_word(source: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let named = word.starts_with(part);
    source.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = source.get(..*at).and_then(|text| text.chars().next_back());
        let after = source.get(at + word.len()..).and_then(|text| text.chars().next());
        !word.is_empty() && (!named || (!before.is_some_and(part) && !after.is_some_and(part)))
    })
}

/// An error as cel-go shows it: with the line, and a mark below the place.
pub(crate) fn located(source: &str, place: Option<usize>, text: &str) -> String {
    let at = place.unwrap_or(0);
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let shown = source.lines().nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{}: {text}\n | {shown}\n | {}^", line + 1, column + 1, ".".repeat(column))
}
