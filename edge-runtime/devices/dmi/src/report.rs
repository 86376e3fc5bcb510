//! A mapper says how its devices are.

use std::collections::BTreeMap;

use prost::Message;

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReportDeviceStatusRequest {
    #[prost(string, tag = "1")]
    pub device_name: String,
    #[prost(message, optional, tag = "2")]
    pub reported_device: Option<DeviceStatus>,
    #[prost(string, tag = "3")]
    pub device_namespace: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReportDeviceStatesRequest {
    #[prost(string, tag = "1")]
    pub device_name: String,
    #[prost(string, tag = "2")]
    pub device_namespace: String,
    #[prost(string, tag = "3")]
    pub state: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceStatus {
    #[prost(message, repeated, tag = "1")]
    pub twins: Vec<Twin>,
    /// Whether the mapper reports the device's state.
    #[prost(bool, tag = "2")]
    pub report_to_cloud: bool,
    /// Milliseconds.
    #[prost(int64, tag = "3")]
    pub report_cycle: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct Twin {
    #[prost(string, tag = "1")]
    pub property_name: String,
    /// The desired value that the mapper holds.
    #[prost(message, optional, tag = "2")]
    pub observed_desired: Option<TwinProperty>,
    #[prost(message, optional, tag = "3")]
    pub reported: Option<TwinProperty>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub struct TwinProperty {
    #[prost(string, tag = "1")]
    pub value: String,
    /// `type` and `timestamp`, milliseconds since 1970 or empty.
    #[prost(btree_map = "string, string", tag = "2")]
    pub metadata: BTreeMap<String, String>,
}
