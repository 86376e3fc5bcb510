//! The variables of a process in a container: the runtime's own, the image's and the pod's, in one list.

/// Default search path for commands (containerd pkg/oci, `defaultUnixEnv`). youki runs nothing without it.
pub(super) fn default_path() -> (String, String) {
    ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned())
}

/// `PATH`, `HOSTNAME`, and `TERM` with a terminal, as containerd and CRI-O set them, the image's variables, then the
/// container's; a later value takes the place of an earlier one.
pub(super) fn merged(
    host_name: &str,
    has_terminal: bool,
    image: &[String],
    own: &[(String, String)],
) -> Vec<(String, String)> {
    let mut merged = vec![default_path(), ("HOSTNAME".to_owned(), host_name.to_owned())];
    if has_terminal {
        merged.push(("TERM".to_owned(), "xterm".to_owned()));
    }
    let image = image.iter().filter_map(|pair| pair.split_once('='));
    let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in image.chain(own) {
        match merged.iter_mut().find(|(held, _)| held == name) {
            Some((_, held)) => value.clone_into(held),
            None => merged.push((name.to_owned(), value.to_owned())),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(list: &[(String, String)]) -> Vec<String> {
        list.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn later_values_win_and_there_is_always_a_path() {
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(text(&merged("h", false, &[], &[])), [path, "HOSTNAME=h"]);
        let image = ["PATH=/opt".to_owned(), "A=1".to_owned(), "nonsense".to_owned()];
        let own = [("A".to_owned(), "2".to_owned()), ("TERM".to_owned(), "dumb".to_owned())];
        assert_eq!(text(&merged("h", true, &image, &own)), ["PATH=/opt", "HOSTNAME=h", "TERM=dumb", "A=2"]);
    }
}
