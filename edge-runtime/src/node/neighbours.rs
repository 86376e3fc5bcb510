//! Nodes of this LAN to whose pods this node has routes, and the assigned subnets of its own pods. [`crate::net::site`]
//! decides.

pub(super) mod state;

use super::Node;
use crate::net::Subnet;
use crate::net::site::{Plan, SiteView, plan, routes};
use crate::store::StoreError;

impl Node {
    /// Updates routes, rules and Services from the neighbours and this node's links. Also restores lost routes: the
    /// kernel deletes those of a link that goes down.
    pub(super) fn follow_neighbours(&mut self) -> Result<(), StoreError> {
        if !self.neighbours.enabled {
            return Ok(());
        }
        self.neighbours.changed = false;
        let links = match routes::links(&self.neighbours.bridge) {
            Ok(links) => links,
            Err(error) => {
                log::error!("addresses of this node's links: {error}");
                return Ok(());
            }
        };
        let views: Vec<&SiteView> = self.neighbours.views.values().collect();
        let given = plan::own_subnets(&self.neighbours.node, &views, &links);
        let own = self.cx.config.network.subnets.clone();
        let (plan, mut wrong) = Plan::of(&self.neighbours.node, &views, &own, &links);
        match given {
            Ok(given) if !given.is_empty() && given != own => {
                let text = |all: &[Subnet]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                log::info!("the cluster gives this node's pods {} (they had: {})", text(&given), text(&own));
                self.again = true;
            }
            Ok(_) => {}
            Err(why) => wrong.push(why),
        }
        if let Err(error) = routes::hold(&plan) {
            wrong.push(format!("routes to the pods of neighbours: {error}"));
        }
        let changed = self.launch.sandboxes.teardown.network.set_neighbours(plan.ranges());
        if changed || self.host_ports.is_stale() {
            self.host_ports.renew();
            self.replace_rules();
        }
        self.services.set_reach(plan);
        let Self { neighbours, cx, .. } = self;
        neighbours.say(cx, wrong)
    }
}
