package server

import (
	"runtime/debug"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// kubernetesModule is the module whose version the server tells its clients.
const kubernetesModule = "k8s.io/kubernetes"

// linkedVersion is upstream's version of the server, with the one of Kubernetes that is linked into the program, which
// only releases of Kubernetes themselves have otherwise.
type linkedVersion struct{ compatibility.EffectiveVersion }

// Info is what /version answers.
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
