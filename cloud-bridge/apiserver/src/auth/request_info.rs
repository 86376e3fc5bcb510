//! Path and query of a request, parsed as the API server's RequestInfo. Pure.

/// The query parameters in order, percent-decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `a=b&c=d`.
    pub(crate) fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The value, or `""`.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// True unless absent, `false` or `0`: the conversion that the API server applies to boolean parameters.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !v.eq_ignore_ascii_case("false") && v != "0")
    }

    /// A number; `None` when absent or empty.
    ///
    /// # Errors
    /// The text, if it is not a number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<i64>, String> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| text.to_owned()),
        }
    }
}

/// A request for a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    /// Empty for cluster-scoped resources and for lists of all namespaces.
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows the subresource `proxy`.
    pub rest: String,
}

/// A path, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(ResourcePath),
    /// Anything else: discovery, health, version.
    Path(String),
}

fn decoded(segment: &str) -> String {
    percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// Parses a path.
pub(crate) fn target(path: &str) -> Target {
    let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decoded).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Target::Path(format!("/{}", parts.join("/"))),
    };
    let (namespace, rest) = match rest {
        // `namespaces/NAME`, `namespaces/NAME/status` and `namespaces/NAME/finalize` are the namespace itself.
        ["namespaces", namespace, inner @ ..] if !matches!(inner, [] | ["status" | "finalize"]) => (*namespace, inner),
        other => ("", other),
    };
    // A path behind a proxy is not part of the API.
    let proxy = rest.get(2) == Some(&"proxy");
    let at = |i: usize| rest.get(i).map(|s| (*s).to_owned()).unwrap_or_default();
    Target::Resource(ResourcePath {
        group: group.into(),
        version: version.into(),
        namespace: namespace.into(),
        resource: at(0),
        name: at(1),
        subresource: rest.get(2..if proxy { 3 } else { rest.len() }).map(|s| s.join("/")).unwrap_or_default(),
        rest: rest.get(3..).filter(|_| proxy).map(|s| s.join("/")).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> ResourcePath {
        match target(path) {
            Target::Resource(path) => path,
            Target::Path(path) => panic!("{path} is no resource"),
        }
    }

    #[test]
    fn paths() {
        let pod = resource("/api/v1/namespaces/a/pods/p/log");
        assert_eq!((pod.namespace.as_str(), pod.resource.as_str()), ("a", "pods"));
        assert_eq!((pod.name.as_str(), pod.subresource.as_str()), ("p", "log"));
        let proxy = resource("/api/v1/nodes/n/proxy/stats/summary");
        assert_eq!((proxy.subresource.as_str(), proxy.rest.as_str()), ("proxy", "stats/summary"));
        assert_eq!(resource("/api/v1/namespaces/a/pods/p/status/x").subresource, "status/x");
        let ns = resource("/api/v1/namespaces/a");
        assert_eq!((ns.resource.as_str(), ns.name.as_str(), ns.namespace.as_str()), ("namespaces", "a", ""));
        let ns = resource("/api/v1/namespaces/a/finalize");
        assert_eq!((ns.resource.as_str(), ns.subresource.as_str()), ("namespaces", "finalize"));
        let lease = resource("/apis/coordination.k8s.io/v1/leases");
        assert_eq!((lease.group.as_str(), lease.resource.as_str()), ("coordination.k8s.io", "leases"));
        assert_eq!(target("/apis/coordination.k8s.io/v1"), Target::Path("/apis/coordination.k8s.io/v1".into()));
        assert_eq!(target("/api/v1/"), Target::Path("/api/v1".into()));
    }

    #[test]
    fn queries() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&limit=x&follow&n=+%zz%2");
        assert_eq!(query.text("labelSelector"), "a=b,c");
        assert!(query.flag("watch") && query.flag("follow") && !query.flag("other"));
        assert_eq!(query.number("limit"), Err("x".to_owned()));
        assert_eq!(query.text("n"), " %zz%2");
    }
}
