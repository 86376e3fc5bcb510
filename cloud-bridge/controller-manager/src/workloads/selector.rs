//! Label selectors in their typed form, as the kinds of `apps` have them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

#[cfg(test)]
thread_local! {
    /// How often it was asked whether labels meet a selector.
    pub(crate) static ASKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Whether these labels meet the selector. An empty one selects everything, as usual in Kubernetes.
pub(crate) fn selects_or_all(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    is_empty(selector) || selects(selector, labels)
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether these labels meet the selector. An empty one selects nothing here: no controller may adopt everything.
pub(crate) fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    #[cfg(test)]
    ASKED.set(ASKED.get() + 1);
    let value = |name: &str| labels.and_then(|labels| labels.get(name));
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    if is_empty(selector) {
        return false;
    }
    equal.all(|(name, wanted)| value(name) == Some(wanted))
        && expressions.all(|one| {
            let value = value(&one.key);
            let listed = || value.is_some_and(|value| one.values.iter().flatten().any(|wanted| wanted == value));
            match one.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_selects_by_all_it_says_and_an_empty_one_nothing() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "front".to_owned())]);
        let says = |text: &str| selects(&serde_json::from_str(text).unwrap(), Some(&labels));
        for (selector, wanted) in [
            ("{}", false),
            (r#"{"matchLabels":{}}"#, false),
            (r#"{"matchLabels":{"app":"web"}}"#, true),
            (r#"{"matchLabels":{"app":"web","tier":"back"}}"#, false),
            (r#"{"matchExpressions":[{"key":"app","operator":"In","values":["db","web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"NotIn","values":["web"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"none","operator":"NotIn","values":["web"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"app","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"Bad"}]}"#, false),
        ] {
            assert_eq!(says(selector), wanted, "{selector}");
        }
        assert!(!selects(&serde_json::from_str(r#"{"matchLabels":{"app":"web"}}"#).unwrap(), None));
    }
}
