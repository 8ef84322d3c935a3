package server

import (
	"runtime/debug"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/component-base/compatibility"
)

// kubernetesModule is the module whose version the server reports to clients.
const kubernetesModule = "k8s.io/kubernetes"

// Version returns the version of the server: the version of Kubernetes that is linked into the program, and of kcp if it is known.
func Version() string { return VersionInfo().GitVersion }

// VersionInfo returns the response of /version.
func VersionInfo() *apimachineryversion.Info {
	if info := (linkedVersion{utilcompatibility.DefaultBuildEffectiveVersion()}).Info(); info != nil {
		return info
	}
	return &apimachineryversion.Info{}
}

// linkedVersion is upstream's version of the server, with the version of Kubernetes that is linked into the program. Otherwise, only
// releases of Kubernetes itself have this version.
type linkedVersion struct{ compatibility.EffectiveVersion }

// Info returns the response of /version.
func (v linkedVersion) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	build, ok := debug.ReadBuildInfo()
	if !ok || info == nil {
		return info
	}
	for _, module := range build.Deps {
		if module.Path == kubernetesModule {
			info.GitVersion = module.Version + "+kcp"
			if own := build.Main.Version; own != "" && own != "(devel)" {
				info.GitVersion += "-" + own
			}
		}
	}
	info.GitCommit, info.BuildDate = "", "" // upstream's placeholders
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.GitCommit = setting.Value
		case "vcs.time":
			info.BuildDate = setting.Value
		}
	}
	return info
}
