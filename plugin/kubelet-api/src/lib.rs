//! Protocols between kubelet and its plugins, generated for both sides from `proto/`, which documents them: the device plugin API,
//! registration by a watched directory, Dynamic Resource Allocation, and PodResources.

#[allow(
    missing_docs,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "generated"
)]
mod generated {
    /// Package `v1beta1`: the device plugin API.
    pub mod v1beta1 {
        tonic::include_proto!("v1beta1");
    }

    /// Package `v1`: PodResources.
    pub mod podresources {
        tonic::include_proto!("v1");
    }

    /// Package `k8s.io.kubelet.pkg.apis.dra.v1`: drivers for Dynamic Resource Allocation.
    pub mod dra {
        tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
    }

    /// Package `v1alpha1`: health of such a driver's devices.
    pub mod dra_health {
        tonic::include_proto!("v1alpha1");
    }

    /// Package `pluginregistration`: kubelet's queries at sockets in a directory that it watches.
    pub mod pluginregistration {
        tonic::include_proto!("pluginregistration");
    }
}

pub use generated::{dra, dra_health, pluginregistration, podresources, v1beta1};

mod connect;

pub use connect::connect;

/// Version of the device plugin API in registrations.
pub const VERSION: &str = "v1beta1";
/// Health of a device that kubelet may allocate.
pub const HEALTHY: &str = "Healthy";
/// Health of a device that kubelet may not allocate.
pub const UNHEALTHY: &str = "Unhealthy";
/// Type of a device plugin in [`pluginregistration::PluginInfo`].
pub const DEVICE_PLUGIN: &str = "DevicePlugin";
/// Type of a driver for Dynamic Resource Allocation in [`pluginregistration::PluginInfo`].
pub const DRA_PLUGIN: &str = "DRAPlugin";
/// Name of a driver's service in registrations.
pub const DRA_SERVICE: &str = "v1.DRAPlugin";
/// Name of the service of its devices' health in registrations.
pub const DRA_HEALTH_SERVICE: &str = "v1alpha1.DRAResourceHealth";
/// Name of kubelet's own socket in its directories.
pub const KUBELET_SOCKET: &str = "kubelet.sock";
/// Name of kubelet's checkpoint of devices, beside its socket.
pub const CHECKPOINT: &str = "kubelet_internal_checkpoint";
/// Longest device ID (characters).
pub const ID_MAX: usize = 63;
/// Largest message of a plugin (bytes): gRPC's default, which kubelet uses.
pub const MESSAGE_MAX: usize = 4 << 20;
/// Largest answer of PodResources that kubelet sends (bytes).
pub const POD_RESOURCES_MAX: usize = 16 << 20;
