//! DMI, `v1beta1`: the messages that mappers (programs that drive devices) and a node exchange over gRPC, and the names
//! of their methods. Fields, numbers and names are KubeEdge's. Values only: does not know gRPC or the meaning of a
//! device.
//!
//! Maps are sorted, so that equal messages have equal bytes.

mod any;
mod device;
mod method;
mod model;
mod push;
mod register;
mod report;
mod wire;

pub use any::{Any, CustomizedValue};
pub use device::{
    CreateDeviceModelRequest, Device, DeviceMethod, DeviceProperty, DeviceSpec, GetDeviceRequest, GetDeviceResponse,
    ProtocolConfig, RegisterDeviceRequest, RegisterDeviceResponse, RemoveDeviceRequest, UpdateDeviceRequest,
    VisitorConfig,
};
pub use method::{manager, mapper};
pub use model::{
    CreateDeviceModelResponse, DeviceCommand, DeviceModel, DeviceModelSpec, ModelProperty, RemoveDeviceModelRequest,
    UpdateDeviceModelRequest,
};
pub use prost::{DecodeError, Message};
pub use push::{
    AnomalyDetection, DbMethod, DbMethodInfluxdb2, DbMethodMysql, DbMethodRedis, DbMethodTdengine,
    Influxdb2ClientConfig, Influxdb2DataConfig, MysqlClientConfig, PushMethod, PushMethodHttp, PushMethodMqtt,
    PushMethodOtel, RedisClientConfig, TdengineClientConfig,
};
pub use register::{MapperInfo, MapperRegisterRequest, MapperRegisterResponse};
pub use report::{DeviceStatus, ReportDeviceStatesRequest, ReportDeviceStatusRequest, Twin, TwinProperty};
pub use wire::{append, appended, count};

/// Answers without fields.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Empty {}

#[cfg(test)]
mod tests;
