//! Health and metrics of the node, computed on request: without requests they cost nothing.
//!
//! | file | owns |
//! |---|---|
//! | `node` | the daemon, its link, store and helpers |
//! | `containers` | pods and their containers, read from their cgroups |
//! | `turns` | duration of the loop's rounds |

mod containers;
mod node;
pub(super) mod turns;

use std::rc::Rc;

use super::Node;
use super::sources::{News, Senders};
use super::streams::stats::plan::Plan;
use crate::config::Config;
use crate::health::{self, Answer, Ask, Asked, What};
use crate::paths::Paths;
use crate::sys::tasks::Tasks;

/// Has the sockets served for as long as the tasks run.
pub(super) fn serve(tasks: &Tasks, senders: &Senders, paths: &Paths, config: &Config) {
    let news = senders.news.clone();
    let ask: Ask = Rc::new(move |asked| news.try_send(News::Asked(asked)).is_ok());
    if let Some(address) = config.metrics.listen() {
        tasks.spawn(health::on_port(tasks.clone(), address, Rc::clone(&ask))).detach();
    }
    tasks.spawn(health::on_socket(tasks.clone(), paths.health(), ask)).detach();
}

impl Node {
    pub(super) fn asked(&self, asked: Asked) {
        let answer = match asked.what {
            // The loop is alive because it answers this.
            What::Live | What::Health => Answer::new(true, "[+]loop ok\n"),
            What::Ready => self.readiness(),
            What::Metrics => self.metrics(),
        };
        // The client may be gone.
        let _ = asked.answer.try_send(answer);
    }

    /// Readiness in the format of an API server's `/readyz?verbose`. An unreachable bridge does not matter: pods run
    /// without it.
    fn readiness(&self) -> Answer {
        let mut checks = vec![("loop", Ok(()))];
        checks
            .push(("monitor", if self.cx.resumed { Ok(()) } else { Err("it has not said yet what runs".to_owned()) }));
        checks.push(("node", self.node_status.ready()));
        let ok = checks.iter().all(|(_, check)| check.is_ok());
        let mut body = String::new();
        for (name, check) in checks {
            match check {
                Ok(()) => body.extend(["[+]", name, " ok\n"]),
                Err(why) => body.extend(["[-]", name, " failed: ", &why, "\n"]),
            }
        }
        body.push_str(match (&self.cx.link, self.cx.connection()) {
            (None, _) => "link: this node has not joined a cluster\n",
            (_, None) => "link: no bridge can be reached\n",
            (_, Some(_)) => "link: connected\n",
        });
        body.push_str(if ok { "readyz check passed\n" } else { "readyz check failed\n" });
        Answer::new(ok, body)
    }

    fn metrics(&self) -> Answer {
        let plan = match Plan::of(&self.cx, &self.launch.base.cgroups) {
            Ok(plan) => plan,
            Err(error) => return Answer::new(false, error.to_string()),
        };
        let text = node::text(self, &plan);
        Answer { ok: true, body: text, more: Some(Box::pin(containers::text(plan))) }
    }
}

#[cfg(test)]
mod tests {
    use crate::link::LinkHandle;
    use crate::node::bench::Bench;

    #[test]
    fn each_check_says_why_the_node_is_not_ready() {
        let mut bench = Bench::new();
        bench.node.cx.resumed = false;
        let answer = bench.node.readiness();
        let monitor = "[-]monitor failed: it has not said yet what runs\n";
        let node = "[-]node failed: the daemon has just started\n";
        let (alone, failed) = ("link: this node has not joined a cluster\n", "readyz check failed\n");
        assert_eq!((answer.ok, answer.body), (false, ["[+]loop ok\n", monitor, node, alone, failed].concat()));
        bench.node.cx.resumed = true;
        bench.node.cx.link = Some(LinkHandle::for_tests(&bench.node.cx.paths, &[]));
        let answer = bench.node.readiness();
        let connected = "link: connected\n";
        assert_eq!(answer.body, ["[+]loop ok\n", "[+]monitor ok\n", node, connected, failed].concat());
    }
}
