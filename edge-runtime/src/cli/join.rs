//! `edge-runtime join`: become a node of a cluster with a single-use token.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use super::CliError;
use super::verb::{Flag, Given, Operands, Verb};
use crate::link::address::BridgeAddress;
use crate::link::identity::Identity;
use crate::link::join::{Token, join};

/// Longer than any token.
const MAX_TOKEN: u64 = 4096;

pub(super) const VERB: Verb = Verb {
    name: "join",
    about: "become a node of a cluster with a single-use token",
    operands: Operands::None,
    flags: &[
        Flag::value("bridge", "URL", "of the bridge, with its port (repeatable)"),
        Flag::value("token", "TOKEN", "what cloud-bridge token create printed"),
        Flag::value("token-file", "FILE", "the same from a file, or - for standard input"),
        Flag::value("node", "NAME", "the name that the token was made for"),
    ],
    run,
};

fn run(given: Given) -> Result<ExitCode, CliError> {
    let bridges: Vec<BridgeAddress> = given.all("bridge")?;
    if bridges.is_empty() {
        return Err(CliError::Usage("join needs --bridge https://HOST:PORT".into()));
    }
    let token = match given.path("token-file") {
        Some(file) => Some(read_token(&file)?),
        None => given.one::<String>("token")?,
    };
    let token = token.ok_or_else(|| {
        CliError::Usage("join needs --token or --token-file; cloud-bridge token create prints one".into())
    })?;
    let token = Token::parse(&token).map_err(CliError::failed)?;
    let node: Option<String> = given.one("node")?;
    let node = node.ok_or_else(|| CliError::Usage("join needs --node, the name the token was made for".into()))?;
    let paths = given.paths()?;
    // A damaged one is replaced.
    if let Ok(Some(old)) = Identity::load(&paths)
        && old.node != node
    {
        return Err(CliError::Failed(format!(
            "this device is node {} already; edge-runtime reset --all makes it nobody again",
            old.node
        )));
    }
    Identity::probe(&paths).map_err(CliError::failed)?;
    let identity = smol::block_on(join(&token, &bridges, &node)).map_err(CliError::failed)?;
    identity.save(&paths).map_err(CliError::failed)?;
    super::version::print(&format!(
        "joined cluster {} as node {node}; start it with: edge-runtime run",
        identity.cluster
    ))
}

/// The token from a file, or from standard input for `-`: other users of the machine can read a command line.
fn read_token(path: &Path) -> Result<String, CliError> {
    let named = |error: std::io::Error| CliError::Failed(format!("{}: {error}", path.display()));
    let mut text = String::new();
    match path.as_os_str() == "-" {
        true => std::io::stdin().take(MAX_TOKEN).read_to_string(&mut text).map_err(named)?,
        false => File::open(path).map_err(named)?.take(MAX_TOKEN).read_to_string(&mut text).map_err(named)?,
    };
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_from_a_file_too() {
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("token");
        std::fs::write(&path, "smp1.abc\n").expect("written");
        assert_eq!(read_token(&path).expect("read"), "smp1.abc");
        assert!(read_token(&folder.path().join("none")).is_err());
    }
}
