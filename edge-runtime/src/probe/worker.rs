//! State of one probe: a pure machine over results and thresholds.
