//! Label selectors of Kubernetes (apimachinery `LabelSelector`). Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Everything must be true; an empty one selects all.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    /// Without the label `NotIn` holds (K8s apimachinery/pkg/labels/selector.go, `Requirement.Matches`).
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn selects(selector: Value, labels: Value) -> bool {
        Selector::deserialize(selector).unwrap().selects(&serde_json::from_value(labels).unwrap())
    }

    #[test]
    fn all_that_is_asked_must_be_true() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        assert!(selects(json!({}), json!({})) && selects(json!({}), json!({"a": "1"})));
        assert!(selects(json!({"matchLabels": {"a": "1"}}), json!({"a": "1", "b": "2"})));
        assert!(!selects(json!({"matchLabels": {"a": "1", "b": "1"}}), json!({"a": "1", "b": "2"})));
        assert!(selects(expression("In", json!(["1", "2"])), json!({"a": "2"})));
        assert!(!selects(expression("In", json!(["1"])), json!({})));
        assert!(selects(expression("NotIn", json!(["1"])), json!({})));
        assert!(!selects(expression("NotIn", json!(["1"])), json!({"a": "1"})));
        assert!(selects(expression("Exists", json!([])), json!({"a": ""})));
        assert!(selects(expression("DoesNotExist", json!([])), json!({"b": ""})));
        let both = json!({"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]});
        assert!(!selects(both.clone(), json!({"b": "2"})) && selects(both, json!({"a": "", "b": "2"})));
    }

    #[test]
    fn malformed_selector_is_refused() {
        let wrong = [
            json!({"matchLabels": {"a": 1}}),
            json!({"matchFields": []}),
            json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            json!({"matchExpressions": {}}),
            json!(7),
        ];
        for wrong in wrong {
            assert!(Selector::deserialize(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
