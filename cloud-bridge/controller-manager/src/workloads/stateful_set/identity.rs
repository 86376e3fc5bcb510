//! Identity of a pod of a StatefulSet: its name ends in its ordinal (K8s
//! pkg/controller/statefulset/stateful_set_utils.go).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The name of the set and the ordinal in a pod's name.
pub(super) fn parent_and_ordinal(meta: &ObjectMeta) -> Option<(&str, i64)> {
    let (parent, digits) = meta.name.as_deref()?.rsplit_once('-')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((parent, digits.parse::<i32>().ok().filter(|_| is_number)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_ends_in_a_number_has_an_ordinal() {
        let read = |name: &str| {
            let meta = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            parent_and_ordinal(&meta).map(|(parent, ordinal)| (parent.to_owned(), ordinal))
        };
        assert_eq!(read("web-0"), Some(("web".to_owned(), 0)));
        assert_eq!(read("my-web-12"), Some(("my-web".to_owned(), 12)));
        for name in ["web", "web-", "web-x", "web-+1", "web-99999999999"] {
            assert_eq!(read(name), None, "{name}");
        }
    }
}
