//! Parts of warnings that several files, and volumes, share.

use serde_json::Value;

use apimachinery::json::{items, present, text};
use apimachinery::quantity::Quantity;

/// Maximum number of warnings: a user with hundreds of duplicate names reads the first ones.
pub(super) const TOLD_MAX: usize = 32;

pub(super) const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The warning about a renamed label of nodes.
pub(crate) fn deprecated(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        _ => return None,
    })
}

/// Old labels in a term that selects nodes.
pub(crate) fn node_term(path: &str, term: &Value, told: &mut Vec<String>) {
    for (i, expression) in items(term, "matchExpressions").iter().enumerate() {
        let label = text(expression, "key");
        told.extend(deprecated(label).map(|why| format!("{path}.matchExpressions[{i}].key: {label} is {why}")));
    }
}

/// Warning about an amount that is not a whole number of bytes.
pub(crate) fn fraction(path: &str, amounts: &Value, name: &str) -> Option<String> {
    let amount = present(amounts, name).and_then(Quantity::from_value).filter(|amount| !amount.is_integer())?;
    Some(format!("{path}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"))
}
