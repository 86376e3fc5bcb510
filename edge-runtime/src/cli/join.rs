//! `edge-runtime join`: become a node of the bridge's cluster with a single-use token.

use std::path::PathBuf;
use std::process::ExitCode;

use lexopt::prelude::*;

use super::CliError;
use crate::link::address::BridgeAddress;
use crate::link::identity::Identity;
use crate::link::join::{Token, join};

pub(super) fn run(mut args: lexopt::Parser) -> Result<ExitCode, CliError> {
    let mut root: Option<PathBuf> = None;
    let mut bridges: Vec<BridgeAddress> = Vec::new();
    let (mut token, mut node) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("root") => root = Some(args.value()?.into()),
            Long("bridge") => bridges.push(args.value()?.parse()?),
            Long("token") => token = Some(args.value()?.string()?),
            Long("node") => node = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    if bridges.is_empty() {
        return Err(CliError::Usage("join needs --bridge https://HOST:PORT".into()));
    }
    let token =
        token.ok_or_else(|| CliError::Usage("join needs --token; cloud-bridge token create prints one".into()))?;
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
    let identity = smol::block_on(join(&token, &bridges, &node)).map_err(CliError::failed)?;
    identity.save(&paths).map_err(CliError::failed)?;
    super::version::print(&format!(
        "joined cluster {} as node {node}; start it with: edge-runtime run",
        identity.cluster
    ))
}
