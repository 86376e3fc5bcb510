//! `DeleteOptions` of a request.

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::Value;

use crate::auth::request_info::Query;
use crate::registry::context::dry_run;
use crate::resource::status::{ApiError, ApiResult};
use crate::resource::typed;
use apimachinery::field::FieldError;

/// `DeleteOptions`, as far as they count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub grace: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub propagation: Option<String>,
    pub dry_run: bool,
}

impl Options {
    /// Reads the body when there is one, else the query.
    pub(crate) fn read(body: &Bytes, query: &Query) -> ApiResult<Self> {
        if body.is_empty() {
            return Self {
                grace: query
                    .number("gracePeriodSeconds")
                    .map_err(|text| ApiError::bad_request(format!("gracePeriodSeconds: {text:?} is no number")))?,
                orphan_dependents: query.get("orphanDependents").map(|_| query.flag("orphanDependents")),
                propagation: query.get("propagationPolicy").map(str::to_owned),
                dry_run: dry_run(query.all("dryRun"), "DeleteOptions")?,
                ..Self::default()
            }
            .checked();
        }
        Self::from_value(&typed::read::<DeleteOptions>(body, "DeleteOptions")?)
    }

    /// Reads a `DeleteOptions` object of checked types; null has no options.
    pub(crate) fn from_value(value: &Value) -> ApiResult<Self> {
        let text = |v: &Value| v.as_str().map(str::to_owned);
        Self {
            grace: value["gracePeriodSeconds"].as_i64(),
            uid: text(&value["preconditions"]["uid"]),
            resource_version: text(&value["preconditions"]["resourceVersion"]),
            orphan_dependents: value["orphanDependents"].as_bool(),
            propagation: text(&value["propagationPolicy"]),
            dry_run: dry_run(
                value["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str),
                "DeleteOptions",
            )?,
        }
        .checked()
    }

    fn checked(self) -> ApiResult<Self> {
        let policy = self.propagation.as_deref();
        if let Some(policy) = policy
            && self.orphan_dependents.is_some()
        {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", &policy.into(), why);
            return Err(ApiError::options("DeleteOptions", &error));
        }
        match policy {
            None | Some("Background" | "Foreground" | "Orphan") => Ok(self),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", &other.into(), &known);
                Err(ApiError::options("DeleteOptions", &error))
            }
        }
    }
}
