//! Kubelet's requests to a container runtime (`runtime.v1`), as far as needed to start a container with devices. Names and
//! numbers are those of the Container Runtime Interface. Written by hand, as the crate with all of it needs `protoc`.

use std::collections::HashMap;

use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// Namespaces: of the pod, of the container, of the node.
pub(super) const POD: i32 = 0;
pub(super) const CONTAINER: i32 = 1;
pub(super) const NODE: i32 = 2;
/// State of a container that has ended.
pub(super) const EXITED: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodId {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerId {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Version {
    #[prost(string, tag = "3")]
    pub(super) runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Image {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageStatusRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<Image>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) image: Option<Image>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<PodMetadata>,
    #[prost(string, tag = "3")]
    pub(super) log_directory: String,
    #[prost(message, optional, tag = "8")]
    pub(super) linux: Option<LinuxPod>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxPod {
    #[prost(string, tag = "1")]
    pub(super) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(super) security: Option<PodSecurity>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSecurity {
    #[prost(message, optional, tag = "1")]
    pub(super) namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Namespaces {
    #[prost(int32, tag = "1")]
    pub(super) network: i32,
    #[prost(int32, tag = "2")]
    pub(super) pid: i32,
    #[prost(int32, tag = "3")]
    pub(super) ipc: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub(super) pod: String,
    #[prost(message, optional, tag = "2")]
    pub(super) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(super) pod_config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(super) image: Option<Image>,
    #[prost(string, repeated, tag = "3")]
    pub(super) command: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) environment: Vec<Variable>,
    #[prost(message, repeated, tag = "7")]
    pub(super) mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "10")]
    pub(super) annotations: HashMap<String, String>,
    /// Path below the pod's `log_directory`.
    #[prost(string, tag = "11")]
    pub(super) log_path: String,
    #[prost(message, optional, tag = "15")]
    pub(super) linux: Option<LinuxContainer>,
    #[prost(message, repeated, tag = "17")]
    pub(super) cdi_devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(uint32, tag = "2")]
    pub(super) attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Variable {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub(super) container_path: String,
    #[prost(string, tag = "2")]
    pub(super) host_path: String,
    #[prost(bool, tag = "3")]
    pub(super) is_read_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    pub(super) security: Option<ContainerSecurity>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerSecurity {
    #[prost(message, optional, tag = "3")]
    pub(super) namespaces: Option<Namespaces>,
    #[prost(message, optional, tag = "5")]
    pub(super) user: Option<Int64>,
    #[prost(bool, tag = "7")]
    pub(super) has_read_only_root: bool,
    #[prost(bool, tag = "11")]
    pub(super) gains_no_privileges: bool,
    #[prost(message, optional, tag = "12")]
    pub(super) group: Option<Int64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Int64 {
    #[prost(int64, tag = "1")]
    pub(super) value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "3")]
    pub(super) state: i32,
    #[prost(int32, tag = "7")]
    pub(super) exit_code: i32,
    #[prost(string, tag = "11")]
    pub(super) message: String,
}

/// Result of a call of `RuntimeService` or `ImageService`, or the runtime's error as kubelet shows it.
pub(super) async fn call<Q, A>(channel: &Channel, method: &'static str, request: Q) -> Result<A, String>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| error.to_string())?;
    let path = PathAndQuery::from_static(method);
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(Request::new(request), path, codec).await;
    answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
}
