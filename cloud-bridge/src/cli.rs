//! The verbs and their flags. Owns what is printed; the work is done by `standalone`, `serve` and `pki`.

#[cfg(all(test, feature = "standalone"))]
mod docs_tests;
mod groups;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use edge_protocol::build;
use serde_json::Value;

use crate::authority::{self, AuthorityVerb};
pub use crate::output::ReaderGone;
use crate::output::{Structured, print};
use crate::tokens::{self, TokenVerb};
#[cfg(feature = "standalone")]
use crate::{backup, kubeconfig, standalone};
use crate::{csi_proxy, doctor, limits, memory, nodes, page_link, pki, serve};

#[derive(Debug, Parser)]
#[command(
    name = "cloud-bridge",
    version,
    about = "Connects many small nodes to a Kubernetes API, its own or that of a cluster",
    after_help = "Examples:
  cloud-bridge standalone --state /var/lib/cloud-bridge    # the bridge with an API of its own
  sudo cloud-bridge token create pi-1                      # the command with which pi-1 joins
  sudo cloud-bridge nodes
  sudo cloud-bridge doctor"
)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// Least severe level that is logged: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", global = true, default_value = "info")]
    log_level: log::LevelFilter,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the bridge with a small Kubernetes API of its own.
    #[cfg(feature = "standalone")]
    #[command(after_help = "Example:
  cloud-bridge standalone --state /var/lib/cloud-bridge --api-listen 0.0.0.0:6443 --advertise bridge.example.com")]
    Standalone(standalone::Options),
    /// Run the bridge beside a cluster, over its Kubernetes API.
    #[command(after_help = "Example:
  cloud-bridge serve --kubeconfig FILE --advertise bridge.example.com --kubelet-address 10.0.0.5 --kubelet-client-ca FILE")]
    Serve(serve::Options),
    /// Serve the controller of a CSI driver on a node at a Unix socket, for the driver's sidecars in the cluster.
    #[command(after_help = "Example:
  cloud-bridge csi-proxy --driver lvm.example.com --node edge-1 --socket /csi/csi.sock \\
    --bridge https://cloud-bridge.sampan.svc:9447 --bridge-ca /etc/bridge/ca.crt")]
    CsiProxy(csi_proxy::Options),
    /// Make, list and delete tokens with which nodes join.
    #[command(subcommand)]
    Token(TokenVerb),
    /// Replace the authority of all certificates, while nodes stay connected.
    #[command(subcommand)]
    Authority(AuthorityVerb),
    /// Print a kubeconfig of a standalone bridge, for kubectl on another machine.
    #[cfg(feature = "standalone")]
    #[command(after_help = "Examples:
  (umask 077; sudo cloud-bridge kubeconfig > admin.kubeconfig)   # the administrator's
  sudo cloud-bridge kubeconfig --server 192.168.1.10             # with another address of this machine
  sudo cloud-bridge kubeconfig --user ann --ttl 30d              # of a person, who has the rights of bindings")]
    Kubeconfig(kubeconfig::Options),
    /// Write the state of a standalone bridge, its keys included, into one file. The bridge may run.
    #[cfg(feature = "standalone")]
    #[command(after_help = "Example:
  sudo cloud-bridge backup /mnt/backup/bridge.backup")]
    Backup(backup::BackupOptions),
    /// Restore a backup into the state folder of a standalone bridge that is stopped.
    #[cfg(feature = "standalone")]
    #[command(after_help = "Examples:
  sudo cloud-bridge restore /mnt/backup/bridge.backup           # print what would come back
  sudo cloud-bridge restore /mnt/backup/bridge.backup --yes")]
    Restore(backup::RestoreOptions),
    /// Find what is wrong with a bridge, and what fixes it. Exit code 0: no warnings; 3: warnings; 4: errors.
    #[command(after_help = "Examples:
  sudo cloud-bridge doctor
  sudo cloud-bridge doctor --all
  sudo cloud-bridge doctor -o json
  cloud-bridge doctor --kubeconfig FILE      # of a bridge beside a cluster")]
    Doctor(doctor::Options),
    /// List the nodes of a running bridge: ready, version, pods, link.
    #[command(after_help = "Examples:
  sudo cloud-bridge nodes
  sudo cloud-bridge nodes -o wide      # epoch, acknowledged changes, queues and round trip of the link, too
  sudo cloud-bridge nodes -o json")]
    Nodes(nodes::Options),
    /// Print a login link for the page (serve or standalone with --page).
    Page(page_link::Options),
    /// Print the completion script of a shell, as in: source <(cloud-bridge completion bash)
    Completion {
        /// Name of the shell.
        shell: Shell,
    },
    /// Print the manual page of this command, or of one of its verbs.
    #[command(hide = true)]
    Man { verb: Vec<String> },
    /// Print version, commit and Kubernetes API level.
    Version {
        /// Print all fields in this form.
        #[arg(short, long, value_enum, value_name = "FORM")]
        output: Option<Structured>,
    },
}

impl Verb {
    /// Whether this is a server: it runs until a signal.
    fn serves(&self) -> bool {
        match self {
            #[cfg(feature = "standalone")]
            Self::Standalone(_) => true,
            Self::Serve(_) => true,
            _ => false,
        }
    }
}

/// Arguments of this process. Ends it for a help, the version, or wrong usage.
pub fn arguments() -> Arguments {
    let mut matches = groups::grouped(Arguments::command()).get_matches();
    let read = Arguments::from_arg_matches_mut(&mut matches);
    read.unwrap_or_else(|error| error.format(&mut Arguments::command()).exit())
}

/// Log lines go to stderr.
pub fn start_log(arguments: &Arguments) -> anyhow::Result<()> {
    // The libraries' own words below a warning are about their insides.
    let levels = simple_logger::SimpleLogger::new()
        .with_level(log::LevelFilter::Warn.min(arguments.log_level))
        .with_module_level("cloud_bridge", arguments.log_level)
        .with_module_level("sampan_", arguments.log_level);
    sampan_log::start(levels).context("starting the log")
}

/// Does what the arguments say; for the servers, until a signal. Returns the exit code.
pub async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    pki::tls::install_provider();
    if arguments.verb.serves() {
        limits::set();
        memory::set_up();
        tokio::spawn(memory::watch());
    }
    let done = match arguments.verb {
        #[cfg(feature = "standalone")]
        Verb::Standalone(options) => standalone::run(options).await,
        Verb::Serve(options) => serve::run(options).await,
        Verb::CsiProxy(options) => csi_proxy::run(options).await,
        #[cfg(feature = "standalone")]
        Verb::Kubeconfig(options) => kubeconfig::run(options).await,
        #[cfg(feature = "standalone")]
        Verb::Backup(options) => backup::back_up(options),
        #[cfg(feature = "standalone")]
        Verb::Restore(options) => backup::bring_back(options),
        Verb::Doctor(options) => return doctor::run(options).await,
        Verb::Nodes(options) => nodes::run(options).await,
        Verb::Page(options) => page_link::run(options).await,
        Verb::Token(verb) => tokens::run(verb).await,
        Verb::Authority(verb) => authority::run(verb).await,
        Verb::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "cloud-bridge", &mut script);
            print(&String::from_utf8(script)?)
        }
        Verb::Man { verb } => manual(&verb),
        Verb::Version { output } => {
            let json = build::json("cloud-bridge");
            print(&match output {
                Some(form) => form.text(&serde_json::from_str::<Value>(&json)?)?,
                None => build::line("cloud-bridge") + "\n",
            })
        }
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The page of `cloud-bridge`, or of the verb that these words name.
fn manual(verb: &[String]) -> anyhow::Result<()> {
    let mut command = Arguments::command();
    command.build();
    for word in verb {
        command = command.find_subcommand(word).with_context(|| format!("no verb {word:?}"))?.clone();
    }
    // `cloud-bridge-token-create`, as `build` has named it.
    let name = command.get_display_name().unwrap_or("cloud-bridge").to_owned();
    let mut page = Vec::new();
    let page_of = clap_mangen::Man::new(command).title(name).section("8").manual("").source("");
    page_of.render(&mut page)?;
    print(&String::from_utf8(page)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn version_is_json_or_yaml_on_request() {
        let form = |form: &str| Arguments::try_parse_from(["cloud-bridge", "version", "-o", form]);
        assert!(matches!(form("json").unwrap().verb, Verb::Version { output: Some(Structured::Json) }));
        assert!(matches!(form("yaml").unwrap().verb, Verb::Version { output: Some(Structured::Yaml) }));
        form("wide").unwrap_err();
    }

    #[test]
    fn flags_name_the_kind_of_their_value() {
        const KINDS: [&str; 21] = [
            "ADDRESS",
            "ADDRESS:PORT",
            "BITS",
            "COUNT",
            "DURATION",
            "FILE",
            "FIRST-LAST",
            "FOLDER",
            "FORM",
            "KEY=VALUE",
            "KIND",
            "LEVEL",
            "NAME",
            "NAME-OR-ADDRESS",
            "NAMESPACE",
            "PATTERN",
            "RANGE",
            "SCOPE",
            "TYPE",
            "URL",
            "WHO",
        ];
        fn check(command: &clap::Command) {
            for flag in
                command.get_arguments().filter(|one| one.get_long().is_some() && one.get_action().takes_values())
            {
                let names = flag.get_value_names().unwrap_or_default();
                assert!(names.iter().all(|name| KINDS.contains(&name.as_str())), "{flag} of {}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = Arguments::command();
        command.build();
        check(&command);
    }
}
