//! The file of a first boot: where it lies, what it says, and how it goes. It holds a token until it is used.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use edge_runtime::net::proxy::Server;

use super::Wanted;
use super::invitation::Invitation;
use super::labels;
use super::proxy::Named;

/// Raspberry Pi OS since 2023, and before; below the root.
pub(crate) const PLACES: [&str; 2] = ["/boot/firmware/edge-runtime.join", "/boot/edge-runtime.join"];
/// Beside it: why it was of no use.
const FAILED: &str = "edge-runtime.join.failed";
/// A token and some names.
const LONGEST: u64 = 64 << 10;

/// What such a file says.
pub(crate) struct JoinFile {
    pub(crate) wanted: Wanted,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    #[error("it is not UTF-8")]
    Text,
    #[error("line {line}: {why}")]
    Line { line: usize, why: String },
    #[error("it lacks a line `{0}: ...`; cloud-bridge token create --file makes one that has all")]
    Lacks(&'static str),
    #[error("it has a line `node: ...`, but the bridge names the boards of a claim token: remove the line")]
    Named,
}

/// The first that is there.
pub(crate) fn find(root: &Path) -> Option<PathBuf> {
    PLACES.iter().map(|place| root.join(place.trim_start_matches('/'))).find(|place| place.exists())
}

pub(crate) fn read(place: &Path) -> Result<JoinFile, FileError> {
    let mut bytes = Vec::new();
    sampan_file::open(place)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(FileError::Long);
    }
    parse(std::str::from_utf8(&bytes).map_err(|_| FileError::Text)?)
}

/// `key: value` by lines: flags of `edge-runtime join`. Editors of other systems leave a mark at the beginning and carriage
/// returns.
fn parse(text: &str) -> Result<JoinFile, FileError> {
    let (mut bridges, mut node, mut token, mut proxy) = (Vec::new(), None, None, None);
    let mut given = std::collections::BTreeMap::new();
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: String| FileError::Line { line: at + 1, why };
        let (key, value) = line.split_once(':').ok_or_else(|| wrong("want KEY: VALUE".into()))?;
        let value = value.trim();
        match key.trim() {
            "bridge" => bridges.push(value.parse().map_err(|error| wrong(format!("{error}")))?),
            "node" => node = Some(value.to_owned()).filter(|node| !node.is_empty()),
            // What is wrong with it is not said with it.
            "token" => token = Some(Invitation::parse(value).map_err(|error| wrong(error.to_string()))?),
            "label" => given.extend([labels::parse(value).map_err(wrong)?]),
            "proxy" => {
                let url = value.parse::<Server>().map_err(|error| wrong(error.to_string()))?;
                proxy = Some(Named { url, user_file: None });
            }
            other => return Err(wrong(format!("{other:?} is none of bridge, node, token, label, proxy"))),
        }
    }
    let Invitation { token, node: its_node, bridges: its_bridges } = token.ok_or(FileError::Lacks("token"))?;
    if bridges.is_empty() {
        bridges = its_bridges;
    }
    if bridges.is_empty() {
        return Err(FileError::Lacks("bridge"));
    }
    let node = match (token.is_claim(), node) {
        (true, Some(_)) => return Err(FileError::Named),
        (true, None) => None,
        (false, node) => Some(node.or(its_node).ok_or(FileError::Lacks("node"))?),
    };
    Ok(JoinFile { wanted: Wanted { bridges, node, token, labels: given, proxy } })
}

/// Writes the reason beside it, for a person who examines the card.
pub(crate) fn explain(place: &Path, why: &str) {
    if let Err(error) = write_failed(place, why, "") {
        log::warn!("{}: {error}", place.with_file_name(FAILED).display());
    }
}

/// Renames it to `.failed`, with the reason in comments at its head: under its own name it says the same as before.
pub(crate) fn set_aside(place: &Path, why: &str) -> io::Result<()> {
    let mut text = String::new();
    sampan_file::open(place)?.take(LONGEST).read_to_string(&mut text)?;
    write_failed(place, why, &text)?;
    remove(place)
}

fn write_failed(place: &Path, why: &str, rest: &str) -> io::Result<()> {
    let mut file = File::create(place.with_file_name(FAILED))?;
    for line in why.lines() {
        writeln!(file, "# This device did not join: {line}")?;
    }
    writeln!(file, "# Make another token with cloud-bridge token create, or token claim for many boards.")?;
    writeln!(file, "# To try this file again, rename it to edge-runtime.join.")?;
    file.write_all(rest.trim_start_matches('\u{feff}').as_bytes())?;
    file.sync_all()
}

/// Removes the file. The token in it is used up, but is overwritten first: a disk keeps the content of deleted files.
pub(crate) fn remove(place: &Path) -> io::Result<()> {
    if let Err(error) = blank(place) {
        log::warn!("{}: {error}", place.display());
    }
    fs::remove_file(place)?;
    place.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn blank(place: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).open(place)?;
    let length = file.metadata()?.len().min(LONGEST);
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut io::repeat(b' ').take(length), &mut file)?;
    file.flush()?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use edge_protocol::join_token::{self, Place};

    use super::*;

    fn token() -> String {
        format!("sampan1.{}.secret", "0a".repeat(32))
    }

    fn wrong(text: &str) -> String {
        match parse(text) {
            Ok(_) => panic!("it is taken: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_refused_file_is_set_aside_and_can_be_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("edge-runtime.join");
        fs::write(&place, format!("bridge: https://b:1\nnode: n\ntoken: {}\n", token())).unwrap();
        set_aside(&place, "refused (401):\nused").unwrap();
        assert!(!place.exists());
        fs::rename(folder.path().join(FAILED), &place).unwrap();
        assert!(fs::read_to_string(&place).unwrap().starts_with("# This device did not join: refused (401):\n# "));
        assert_eq!(read(&place).map_err(|error| error.to_string()).unwrap().wanted.node.as_deref(), Some("n"));
    }

    #[test]
    fn it_says_what_the_flags_of_join_say() {
        let text = format!(
            "\u{feff}# for the board in hall 3\r\nbridge: https://b:7443\r\nbridge: https://[::1]:7443\r\n\r\nnode: edge-1\r\ntoken: {}\r\nlabel: a/b=c\r\nproxy: http://proxy.lan:3128\r\n",
            token()
        );
        let wanted = parse(&text).map_err(|error| error.to_string()).unwrap().wanted;
        assert_eq!(
            wanted.bridges.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["https://b:7443", "https://[::1]:7443"]
        );
        assert_eq!((wanted.node.as_deref(), wanted.labels["a/b"].as_str()), (Some("edge-1"), "c"));
        assert_eq!(wanted.proxy.map(|proxy| proxy.url.authority()), Some("proxy.lan:3128".to_owned()));
    }

    #[test]
    fn example_for_cloud_init_is_such_a_file() {
        let example: serde_yaml_ng::Value =
            serde_yaml_ng::from_str(include_str!("../../../../examples/cloud-init.yaml")).unwrap();
        let written = &example["write_files"][0];
        assert!(PLACES.contains(&written["path"].as_str().unwrap()));
        assert_eq!(written["permissions"].as_str(), Some("0600"), "a token is in it");
        let place = Place { node: "edge-1".into(), bridges: vec!["https://b:7443".into()] };
        let text = written["content"].as_str().unwrap().replace("TOKEN", &join_token::with_place(&token(), &place));
        let wanted = parse(&text).map_err(|error| error.to_string()).unwrap().wanted;
        assert_eq!((wanted.node.as_deref(), wanted.labels["example.com/site"].as_str()), (Some("edge-1"), "north"));
        let installs = example["runcmd"].as_sequence().unwrap().iter().filter_map(|command| command.as_str());
        let mut installs = installs.filter(|command| command.starts_with("apt-get"));
        assert!(installs.all(|command| command.contains("DPkg::Lock::Timeout=")), "timers of apt may be at work");
    }

    #[test]
    fn token_alone_is_enough_if_it_names_node_and_bridge() {
        let place = Place { node: "edge-1".into(), bridges: vec!["https://b:7443".into()] };
        let text = format!("token: {}\n", join_token::with_place(&token(), &place));
        let read = |text: &str| parse(text).map_err(|error| error.to_string()).unwrap().wanted;
        let wanted = read(&text);
        assert_eq!(
            (wanted.node.as_deref(), wanted.bridges[0].to_string().as_str()),
            (Some("edge-1"), "https://b:7443")
        );
        let wanted = read(&format!("{text}bridge: https://c:1\n"));
        assert_eq!(wanted.bridges.iter().map(ToString::to_string).collect::<Vec<_>>(), ["https://c:1"]);
    }

    #[test]
    fn claim_token_leaves_the_name_to_the_bridge() {
        let text = format!("bridge: https://b:1\ntoken: {}\n", token().replace("sampan1", "sampan2"));
        assert_eq!(parse(&text).map_err(|error| error.to_string()).unwrap().wanted.node, None);
        assert!(wrong(&format!("{text}node: n\n")).contains("remove the line"));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_line_and_never_with_the_token() {
        assert_eq!(
            wrong("node: n\nbridge: http://b"),
            "line 2: bridge address \"http://b\": must be https://HOST:PORT"
        );
        assert!(wrong("tokn: x").starts_with("line 1: \"tokn\" is none of"));
        assert!(wrong("edge-1").starts_with("line 1: want"));
        let said = wrong("proxy: http://name:hush@proxy.lan:3128\n");
        assert!(said.starts_with("line 1: the address of a proxy") && !said.contains("hush"), "{said}");
        let said = wrong("bridge: https://b:1\nnode: n\ntoken: sampan1.hush\n");
        assert!(said.starts_with("line 3: ") && !said.contains("hush"), "{said}");
        assert!(wrong("bridge: https://b:1\nnode: n\n").contains("`token: "));
        assert!(wrong(&format!("node: n\ntoken: {}\n", token())).contains("`bridge: "));
        assert!(wrong(&format!("bridge: https://b:1\nnode:\ntoken: {}\n", token())).contains("`node: "));
    }

    #[test]
    fn it_goes_and_leaves_a_reason_without_the_token() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(find(root.path()), None);
        fs::create_dir_all(root.path().join("boot/firmware")).unwrap();
        let place = root.path().join("boot/firmware/edge-runtime.join");
        fs::write(&place, format!("token: {}\n", token())).unwrap();
        let other = root.path().join("boot/edge-runtime.join");
        fs::hard_link(&place, &other).unwrap();
        assert_eq!(find(root.path()), Some(place.clone()));
        explain(&place, "the token was used");
        remove(&place).unwrap();
        assert!(!place.exists());
        assert!(fs::read_to_string(&other).unwrap().trim().is_empty(), "what the disk keeps is blank");
        assert!(fs::read_to_string(place.with_file_name(FAILED)).unwrap().contains("the token was used"));
        fs::write(&place, vec![b'a'; 70_000]).unwrap();
        assert!(matches!(read(&place), Err(FileError::Long)));
    }
}
