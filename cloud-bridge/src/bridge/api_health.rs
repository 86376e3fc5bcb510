//! Whether the API answers this bridge, for whoever asks if it is ready. Asked at most once in a few seconds, however many ask.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Bridge;

/// An answer is good for so long.
const GOOD_FOR: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(3);

/// The last answer.
#[derive(Default)]
pub(super) struct ApiHealth(Mutex<Option<(Instant, Result<(), String>)>>);

impl Bridge {
    /// # Errors
    /// The API does not answer: why, in a few words.
    pub async fn api_answers(&self) -> Result<(), String> {
        let mut last = self.shared.api_health.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < GOOD_FOR
        {
            return answer.clone();
        }
        let asked = tokio::time::timeout(PATIENCE, self.shared.clients.own().apiserver_version()).await;
        let answer = match asked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
