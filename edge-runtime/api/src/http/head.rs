//! The head of an answer, out of its stream.

use std::future::poll_fn;

use edge_protocol::channel::OPENED;
use edge_protocol::message::ApiAnswer;

use crate::relay::Stream;

/// The head of the answer.
///
/// # Errors
/// The stream has ended before.
pub(super) async fn head(stream: &Stream) -> Result<ApiAnswer, String> {
    let record = poll_fn(|context| stream.poll_record(context)).await?;
    if record.channel != OPENED {
        return Err("an answer without a head".to_owned());
    }
    serde_json::from_slice(&record.data).map_err(|error| format!("the head of an answer: {error}"))
}
