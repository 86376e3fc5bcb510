//! Deletes a provisioned volume of this node. As far as the cluster knows, no pod uses it; a container that still runs
//! continues to write into the unlinked files.

use edge_protocol::message::StreamRequest;

use super::{Asked, Streams};
use crate::volume::is_volume_name;

impl Streams {
    /// Done when this returns, except that a helper may still free the room.
    pub(super) fn open_delete_volume(asked: &Asked<'_>) -> Result<(), String> {
        let StreamRequest::DeleteVolume { volume } = asked.request else { return Ok(()) };
        if !is_volume_name(volume) {
            return Err(format!("bad request: {volume:?} is no name of a volume"));
        }
        let folder = asked.of.cx.paths.volumes().join(volume);
        asked.of.volumes_trash.throw(&folder).map_err(|error| error.to_string())?;
        log::info!("volume {volume} is deleted");
        if let Some(link) = &asked.of.cx.link {
            link.stream_end(asked.stream, None);
        }
        Ok(())
    }
}
