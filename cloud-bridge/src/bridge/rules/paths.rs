//! Paths of rules, in which `{NAME}` stands for one segment. Pure.

use std::cmp::Reverse;

/// The part of a path behind that of a rule, in which `{NAME}` matches one segment (KubeEdge,
/// `pkg/router/utils/path.go`).
pub(super) fn behind<'a>(own: &str, path: &'a str) -> Option<&'a str> {
    own.split('/').skip(1).try_fold(path, |rest, wanted| {
        let rest = rest.strip_prefix('/')?;
        let (segment, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let fits = segment == wanted || (is_parameter(wanted) && !segment.is_empty());
        fits.then_some(rest)
    })
}

fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{') && segment.ends_with('}')
}

/// Returns the same text for patterns that match the same paths.
pub(super) fn shape(path: &str) -> String {
    let segments: Vec<&str> = path.split('/').map(|one| if is_parameter(one) { "{}" } else { one }).collect();
    segments.join("/")
}

/// Sort key; the first rule that matches a path gets it: more segments first, then plain ones before parameters.
pub(super) fn rank(path: &str) -> (Reverse<usize>, Vec<bool>) {
    let segments: Vec<bool> = path.split('/').map(is_parameter).collect();
    (Reverse(segments.len()), segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_is_one_segment_that_is_not_empty() {
        assert_eq!(behind("/a/{id}", "/a/7/off"), Some("/off"));
        assert_eq!(behind("/a/{id}", "/a/7"), Some(""));
        assert_eq!((behind("/a/{id}", "/a/"), behind("/a", "/ab"), behind("/a/b", "/a")), (None, None, None));
    }

    #[test]
    fn patterns_of_the_same_paths_have_one_shape() {
        assert_eq!(shape("/a/{id}/b"), shape("/a/{name}/b"));
        assert_ne!(shape("/a/{id}"), shape("/a/id"));
    }

    #[test]
    fn longer_and_plainer_paths_come_first() {
        let mut paths = ["/a", "/a/{id}", "/a/all", "/a/{id}/on"];
        paths.sort_by_key(|path| rank(path));
        assert_eq!(paths, ["/a/{id}/on", "/a/all", "/a/{id}", "/a"]);
    }
}
