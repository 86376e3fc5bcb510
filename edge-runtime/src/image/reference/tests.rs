//! Names, good and bad.

use super::*;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn short_names_get_dockers_defaults() {
    for (typed, full) in [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/library/busybox", "docker.io/library/busybox:latest"),
        ("team/app", "docker.io/team/app:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("127.0.0.1:5000/a/b/c:v1", "127.0.0.1:5000/a/b/c:v1"),
        ("[::1]:5000/app:v1", "[::1]:5000/app:v1"),
        ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
        ("a__b/c-d---e.f", "docker.io/a__b/c-d---e.f:latest"),
    ] {
        let reference = Reference::parse(typed).unwrap();
        assert_eq!(reference.to_string(), full);
        assert_eq!(Reference::parse(full).unwrap(), reference, "a normalized name stays itself");
    }
}

#[test]
fn a_digest_decides_over_the_tag() {
    let reference = Reference::parse(&format!("app:v1@{DIGEST}")).unwrap();
    assert_eq!(reference.to_string(), format!("docker.io/library/app@{DIGEST}"));
    assert_eq!(reference.manifest(), DIGEST);
    assert_eq!(Reference::parse(&format!("app@{DIGEST}")).unwrap().tag, None);
}

#[test]
fn malformed_names_are_refused() {
    let long = format!("a/{}", "b".repeat(255));
    for bad in [
        "",
        ":tag",
        "a:",
        "a//b",
        "/a",
        "a/",
        "Busybox",
        "a/B",
        "a..b",
        "a___b",
        "-a",
        "a b",
        "a@sha256:12",
        "a@md5:0123",
        "a@SHA256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "a:.tag",
        "../../etc/passwd",
        "host:99999/a",
        "host:/a:b:c",
        "[::1/a",
        "[]:1/a",
        "a.-b.c/d",
        "a\n",
        "é/a",
        long.as_str(),
    ] {
        let error = Reference::parse(bad).expect_err(bad);
        assert_eq!(error.reason(), "InvalidImageName", "{bad}");
        assert!(error.to_string().contains(&format!("{bad:?}")));
    }
    assert!(Reference::parse(&format!("a:{}", "t".repeat(129))).is_err());
    assert!(Reference::parse("Busybox").unwrap_err().to_string().contains("must be lowercase"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "\\PC{0,80}|[a-z0-9]{1,8}[a-z0-9:/@._-]{0,40}") {
        if let Ok(reference) = Reference::parse(&text) {
            proptest::prop_assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference);
        }
    }
}
