//! A request of a pod that is under way.

use std::rc::Rc;

use edge_protocol::message::ApiRequest;

use crate::asked::Asked;
use crate::pods::{UnderWay, Who};
use crate::shared::Shared;

pub(super) struct Job {
    pub(super) shared: Rc<Shared>,
    pub(super) who: Rc<Who>,
    pub(super) request: ApiRequest,
    pub(super) asked: Asked,
    pub(super) under_way: Rc<UnderWay>,
}
