//! `edge-runtime top`: what the node, its pods and their containers use now. Reads the store and cgroups; needs no daemon.
//!
//! | file | owns |
//! |---|---|
//! | `look` | one look at the counters |
//! | `view` | what two looks say: rates, order |
//! | `show` | text and JSON of it |
//! | `terminal` | the screen and the keys |

pub(crate) mod look;
pub(crate) mod show;
mod terminal;
pub(crate) mod view;

use std::io::IsTerminal;
use std::thread::sleep;
use std::time::Duration;

use edge_runtime::cli::CliError;
use edge_runtime::cli::verb::{Flag, Given, Operands, Verb};

use self::look::Looker;
use self::terminal::{Key, Screen};
use self::view::{Order, PodView, View};
use crate::output::{Form, JSON, OUTPUT};

/// Between two looks on a terminal, and where one answer is wanted.
const PERIOD: Duration = Duration::from_secs(2);
const ONCE: Duration = Duration::from_secs(1);

pub(crate) const VERB: Verb = Verb {
    name: "top",
    about: "Show CPU and memory of the node, its pods and containers, refreshed",
    operands: Operands::None,
    flags: &[
        Flag::switch("once", "print once, also on a terminal"),
        Flag::value("sort", "cpu|memory|name", "order (keys c, m, n on a terminal)"),
        OUTPUT,
        JSON,
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let form = Form::of(&given)?;
    let mut order = match given.one::<String>("sort")?.as_deref() {
        None | Some("cpu") => Order::Cpu,
        Some("memory") => Order::Memory,
        Some("name") => Order::Name,
        Some(other) => return Err(CliError::Usage(format!("--sort {other}: cpu, memory or name"))),
    };
    let looker = Looker::open(&given.paths()?)?;
    let mut last = looker.look()?;
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if form != Form::Table || given.has("once") || !is_terminal {
        sleep(ONCE);
        let view = View::of(&last, &looker.look()?, order);
        let name = |one: &PodView| format!("{}/{}", one.pod.namespace, one.pod.name);
        return form.print(&show::json(&view), |_| show::text(&view, None), || view.pods.iter().map(name).collect());
    }
    let screen = Screen::open()?;
    // Something to see at once.
    let mut wait = Duration::from_millis(300);
    loop {
        match screen.key(wait)? {
            Key::End => return Ok(()),
            Key::Order(wanted) => order = wanted,
            Key::None => {}
        }
        let now = looker.look()?;
        let view = View::of(&last, &now, order);
        screen.draw(&show::text(&view, Some(screen.size())))?;
        if now.at.duration_since(last.at) >= wait {
            last = now;
        }
        wait = PERIOD;
    }
}
