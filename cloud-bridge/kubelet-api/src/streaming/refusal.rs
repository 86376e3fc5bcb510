//! Why a request is not upgraded, as an answer.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::backend::BackendError;

/// Why a request is not upgraded, as an answer.
#[derive(Debug)]
pub struct ErrorResponse {
    pub code: StatusCode,
    pub text: String,
    /// Protocols that would be served.
    pub(super) accepted: Vec<&'static str>,
}

impl ErrorResponse {
    pub(super) fn new(code: StatusCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), accepted: Vec::new() }
    }

    /// What else an answer says.
    pub fn headers(&self) -> HeaderMap {
        const ACCEPTED: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
        self.accepted.iter().map(|name| (ACCEPTED, HeaderValue::from_static(name))).collect()
    }

    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

impl From<BackendError> for ErrorResponse {
    fn from(error: BackendError) -> Self {
        let code = match &error {
            BackendError::BadRequest(_) => StatusCode::BAD_REQUEST,
            BackendError::NotFound(_) => StatusCode::NOT_FOUND,
            BackendError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            BackendError::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            BackendError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(code, error.to_string())
    }
}
