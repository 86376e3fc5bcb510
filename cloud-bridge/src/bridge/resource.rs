//! Resources of the API by their names, for objects that this build has no type for.

use kube::api::ApiResource;

use super::told::kinds::Kind;

/// `api_version`: group and version, or the version alone in the core group.
pub(super) fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The resource of a kind that nodes receive.
pub(super) fn of_kind(kind: Kind) -> ApiResource {
    let facts = kind.facts();
    resource(facts.api, facts.name, facts.plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_and_version_are_told_apart() {
        let parts = |kind: Kind| {
            let found = of_kind(kind);
            [found.group, found.version, found.api_version, found.plural]
        };
        assert_eq!(parts(Kind::Secret), ["", "v1", "v1", "secrets"]);
        assert_eq!(parts(Kind::RuntimeClass), ["node.k8s.io", "v1", "node.k8s.io/v1", "runtimeclasses"]);
    }
}
