//! The paths of the methods, as they stand in `:path`.

/// Methods that a node serves for mappers.
pub mod manager {
    pub const SERVICE: &str = "v1beta1.DeviceManagerService";
    /// [`MapperRegisterRequest`](crate::MapperRegisterRequest) → [`MapperRegisterResponse`](crate::MapperRegisterResponse)
    pub const MAPPER_REGISTER: &str = "/v1beta1.DeviceManagerService/MapperRegister";
    /// [`ReportDeviceStatusRequest`](crate::ReportDeviceStatusRequest) → [`Empty`](crate::Empty): twins, in spite of its name
    pub const REPORT_DEVICE_STATUS: &str = "/v1beta1.DeviceManagerService/ReportDeviceStatus";
    /// [`ReportDeviceStatesRequest`](crate::ReportDeviceStatesRequest) → [`Empty`](crate::Empty)
    pub const REPORT_DEVICE_STATES: &str = "/v1beta1.DeviceManagerService/ReportDeviceStates";
}

/// Methods that a mapper serves for the node.
pub mod mapper {
    pub const SERVICE: &str = "v1beta1.DeviceMapperService";
    /// [`RegisterDeviceRequest`](crate::RegisterDeviceRequest) → [`RegisterDeviceResponse`](crate::RegisterDeviceResponse)
    pub const REGISTER_DEVICE: &str = "/v1beta1.DeviceMapperService/RegisterDevice";
    /// [`RemoveDeviceRequest`](crate::RemoveDeviceRequest) → [`Empty`](crate::Empty)
    pub const REMOVE_DEVICE: &str = "/v1beta1.DeviceMapperService/RemoveDevice";
    /// [`UpdateDeviceRequest`](crate::UpdateDeviceRequest) → [`Empty`](crate::Empty)
    pub const UPDATE_DEVICE: &str = "/v1beta1.DeviceMapperService/UpdateDevice";
    /// [`CreateDeviceModelRequest`](crate::CreateDeviceModelRequest) → [`CreateDeviceModelResponse`](crate::CreateDeviceModelResponse)
    pub const CREATE_DEVICE_MODEL: &str = "/v1beta1.DeviceMapperService/CreateDeviceModel";
    /// [`RemoveDeviceModelRequest`](crate::RemoveDeviceModelRequest) → [`Empty`](crate::Empty)
    pub const REMOVE_DEVICE_MODEL: &str = "/v1beta1.DeviceMapperService/RemoveDeviceModel";
    /// [`UpdateDeviceModelRequest`](crate::UpdateDeviceModelRequest) → [`Empty`](crate::Empty)
    pub const UPDATE_DEVICE_MODEL: &str = "/v1beta1.DeviceMapperService/UpdateDeviceModel";
    /// [`GetDeviceRequest`](crate::GetDeviceRequest) → [`GetDeviceResponse`](crate::GetDeviceResponse). KubeEdge's framework dies of it.
    pub const GET_DEVICE: &str = "/v1beta1.DeviceMapperService/GetDevice";
}
