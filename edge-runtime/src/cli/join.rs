//! `edge-runtime join`: become a node of the bridge's cluster with a single-use token.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lexopt::prelude::*;

use super::CliError;
use crate::link::address::BridgeAddress;
use crate::link::identity::Identity;
use crate::link::join::{Token, join};

/// Longer than any token.
const MAX_TOKEN: u64 = 4096;

pub(super) fn run(mut args: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut root: Option<PathBuf> = None;
    let mut bridges: Vec<BridgeAddress> = Vec::new();
    let (mut token, mut node) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("root") => root = Some(args.value()?.into()),
            Long("bridge") => bridges.push(args.value()?.parse()?),
            Long("token") => token = Some(args.value()?.string()?),
            Long("token-file") => token = Some(read_token(&PathBuf::from(args.value()?))?),
            Long("node") => node = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    if bridges.is_empty() {
        return Err(CliError::Usage("join needs --bridge https://HOST:PORT".into()));
    }
    let token = token.ok_or_else(|| {
        CliError::Usage("join needs --token or --token-file; cloud-bridge token create prints one".into())
    })?;
    let token = Token::parse(&token).map_err(CliError::failed)?;
    let node = node.ok_or_else(|| CliError::Usage("join needs --node, the name the token was made for".into()))?;
    let paths = super::paths(root)?;
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
