//! The validation rules of custom resources (`x-kubernetes-validations`), as the API server judges them. Usable only
//! through [`helper`]: rules are programs of strangers, so they run in a process that may die of them.
//!
//! It must not know of stores, requests or the processes around it: a schema and objects go in, findings come out.

mod check;
mod cost;
mod environment;
mod escape;
pub mod frame;
mod functions;
pub mod helper;
mod optional;
pub mod question;
mod rule;
mod schema;
mod types;
mod validate;
mod value;

#[cfg(test)]
mod tests;
