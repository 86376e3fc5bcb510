//! Rules for names and paths that plugins give.

use sampan_plugins_control::MAX_ID;

/// Longest path, bytes (path_resolution(7)).
const MAX_PATH: usize = 4_095;

/// Whether a plugin may have a resource of this name: as `IsExtendedResourceName` in Kubernetes'
/// `pkg/apis/core/v1/helper/helpers.go`.
pub(crate) fn is_extended_resource(name: &str) -> bool {
    // Of a quota.
    const PREFIX: &str = "requests.";
    let Some((domain, rest)) = name.split_once('/') else { return false };
    !name.contains("kubernetes.io/")
        && !name.starts_with(PREFIX)
        && PREFIX.len() + domain.len() <= 253
        && domain.split('.').all(is_label)
        && is_word(rest, 63)
}

/// A label of a DNS name, whose length only the whole limits (`IsDNS1123Subdomain`).
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_framed(label, inner) && label.bytes().all(|byte| inner(byte) || byte == b'-')
}

/// Letters and digits, with `-`, `_` and `.` between them.
fn is_word(word: &str, most: usize) -> bool {
    word.len() <= most
        && is_framed(word, |byte| byte.is_ascii_alphanumeric())
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Whether it may be the name of a CSI driver: as `ValidateCSIDriverName` in Kubernetes' `pkg/apis/core/validation`. Its
/// folder is beside `volumeDevices`.
pub(crate) fn is_driver(name: &str) -> bool {
    name.len() <= 63 && name != "volumeDevices" && name.to_ascii_lowercase().split('.').all(is_label)
}

/// Whether it may be the UID of a pod, or the name of a volume: a folder has this name.
pub(crate) fn is_folder(name: &str) -> bool {
    is_word(name, 253)
}

/// Whether it may be the key of a label.
pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => domain.len() <= 253 && domain.split('.').all(is_label) && is_word(name, 63),
        None => is_word(key, 63),
    }
}

/// Whether it may be the value of a label.
pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_word(value, 63)
}

/// Whether first and last byte are such.
fn is_framed(text: &str, is_such: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    [bytes.first(), bytes.last()].into_iter().all(|byte| byte.is_some_and(|byte| is_such(*byte)))
}

/// Whether it may be the name of a device: anything short that is one line.
pub(crate) fn is_device_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID && !id.chars().any(char::is_control)
}

/// Whether it is the name of a file in a folder.
pub(crate) fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !matches!(name, "." | "..") && !name.contains(['/', '\0'])
}

/// Whether it is an absolute path, on one line, that leads up nowhere.
pub(crate) fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= MAX_PATH
        && !path.chars().any(char::is_control)
        && path.split('/').all(|part| part != "..")
}

/// Whether these are rights of a device's cgroup: some of `r`, `w` and `m`, each once.
pub(crate) fn is_permissions(text: &str) -> bool {
    let count = |which| text.bytes().filter(|byte| *byte == which).count();
    let (r, w, m) = (count(b'r'), count(b'w'), count(b'm'));
    !text.is_empty() && r <= 1 && w <= 1 && m <= 1 && r + w + m == text.len()
}

/// A name of a CDI device, `VENDOR/CLASS=NAME`, as its kind and its name.
pub(crate) fn cdi_device(qualified: &str) -> Option<(&str, &str)> {
    let (kind, name) = qualified.split_once('=')?;
    (is_cdi_kind(kind) && is_cdi_name(name)).then_some((kind, name))
}

/// `VENDOR/CLASS`: both begin with a letter and end with a letter or digit (`SPEC.md` of CDI, "kind").
pub(crate) fn is_cdi_kind(kind: &str) -> bool {
    kind.split_once('/').is_some_and(|(vendor, class)| {
        let begins = |word: &str| word.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        is_word(vendor, 253) && is_word(class, 63) && begins(vendor) && begins(class)
    })
}

/// Name of a device in a CDI specification.
pub(crate) fn is_cdi_name(name: &str) -> bool {
    name.len() <= MAX_ID
        && is_framed(name, |byte| byte.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_a_domain_that_is_not_of_kubernetes() {
        let long = format!("{}/a", vec!["a".repeat(60); 4].join("."));
        for name in ["example.com/gpu", "a/b", "squat.ai/tty_1.x", "1.2/3", &long] {
            assert!(is_extended_resource(name), "{name}");
        }
        let longer = format!("aa{long}");
        let name = format!("a/{}", "x".repeat(64));
        for name in [
            "",
            "cpu",
            "/a",
            "a/",
            "a/b/c",
            "kubernetes.io/gpu",
            "node.kubernetes.io/gpu",
            "requests.example.com/gpu",
            "Example.com/gpu",
            "a..b/c",
            "-a/b",
            "a/-b",
            "a/b ",
            "a/ü",
            &longer,
            &name,
        ] {
            assert!(!is_extended_resource(name), "{name}");
        }
    }

    #[test]
    fn devices_and_files_have_names_of_one_line() {
        assert!(is_device_id("GPU-8d-ü \"1\"") && is_device_id(&"x".repeat(253)));
        for id in ["", "a\nb", "a\0", &"x".repeat(254)] {
            assert!(!is_device_id(id), "{id:?}");
        }
        assert!(is_file_name("gpu.sock") && is_file_name("..a"));
        for name in ["", ".", "..", "a/b", "/a", "../a", "a\0b", &"x".repeat(256)] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }

    #[test]
    fn drivers_and_volumes_have_names_of_folders() {
        for name in ["nfs.csi.k8s.io", "a", "Hostpath.csi.K8s.io"] {
            assert!(is_driver(name), "{name}");
        }
        for name in ["", "..", "a/b", "a..b", "a_b", "volumeDevices", "a.b/", &"x".repeat(64)] {
            assert!(!is_driver(name), "{name}");
        }
        assert!(is_folder("pvc-0a1b") && is_folder("a_b.C") && is_folder(&"x".repeat(253)));
        for name in ["", ".", "..", "a/b", "../a", ".a", "a\0", "a b", "kubernetes.io~csi", &"x".repeat(254)] {
            assert!(!is_folder(name), "{name:?}");
        }
    }

    #[test]
    fn labels_have_keys_and_values() {
        assert!(is_label_key("topology.kubernetes.io/zone") && is_label_key("zone") && is_label_value(""));
        for key in ["", "/", "a/", "/a", "A.b/c", "a/b/c", "a b"] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(!is_label_value("-") && !is_label_value(&"v".repeat(64)));
    }

    #[test]
    fn paths_are_absolute_and_lead_up_nowhere() {
        for path in ["/", "/dev/ttyUSB0", "/a..b/..c", "/dev//x", "/ü"] {
            assert!(is_path(path), "{path}");
        }
        for path in ["", "dev", "/..", "/a/../b", "/a\nb", &format!("/{}", "x".repeat(4_095))] {
            assert!(!is_path(path), "{path:?}");
        }
    }

    #[test]
    fn permissions_are_of_a_cgroup() {
        for text in ["r", "rw", "rwm", "mrw"] {
            assert!(is_permissions(text), "{text}");
        }
        for text in ["", "rr", "x", "rwmx", "RW"] {
            assert!(!is_permissions(text), "{text}");
        }
    }

    #[test]
    fn cdi_devices_have_a_vendor_a_class_and_a_name() {
        assert_eq!(cdi_device("vendor.com/class=dev:0"), Some(("vendor.com/class", "dev:0")));
        assert_eq!(cdi_device("vendor.com/class=0"), Some(("vendor.com/class", "0")));
        for wrong in ["", "vendor.com/class", "class=a", "v/c=", "1v/c=a", "v/1c=a", "v/c=a b", "v/c=-a", "v/c/d=a"] {
            assert_eq!(cdi_device(wrong), None, "{wrong}");
        }
    }
}
