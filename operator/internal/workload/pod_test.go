package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// D2: a template changes only the fields that it sets, and adds to lists of named items.
func TestATemplateChangesOnlyTheFieldsThatItSets(t *testing.T) {
	for raw, want := range map[string][]corev1.LocalObjectReference{
		`{"affinity": {"nodeAffinity": {}}}`:             {{Name: "registry"}},
		`{"imagePullSecrets": [{"name": "another"}]}`:    {{Name: "another"}, {Name: "registry"}},
		`{"containers": [{"name": "kcp", "tty": true}]}`: {{Name: "registry"}},
	} {
		component := &workload.Component{Name: "kcp", Container: "kcp", Image: "image", PullSecrets: []v1alpha1.LocalReference{{Name: "registry"}},
			Files: []workload.Files{{Name: "server", Secret: "server", Path: "/tls"}}}
		plain, err := workload.Pod(component)
		if err != nil {
			t.Fatal(err)
		}
		component.Template = &v1alpha1.DeploymentTemplate{Spec: &v1alpha1.DeploymentSpecTemplate{Template: &v1alpha1.PodTemplateSpec{
			Spec: &runtime.RawExtension{Raw: []byte(raw)}}}}
		pod, err := workload.Pod(component)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, pod.Spec.ImagePullSecrets); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
		pod.Spec.ImagePullSecrets, pod.Spec.Affinity, pod.Spec.Containers[0].TTY = plain.Spec.ImagePullSecrets, nil, false
		if diff := cmp.Diff(plain, pod); diff != "" {
			t.Errorf("%s changes something else, too: %s", raw, diff)
		}
	}
}

func TestExtraVolumesWithUsedNamesOrPathsAreRefused(t *testing.T) {
	for want, extra := range map[string]v1alpha1.ExtraSpec{
		"spec.extraVolumes: the pods have a volume named server already: choose another name": {
			ExtraVolumes: []corev1.Volume{{Name: "mine"}, {Name: "server"}}},
		"spec.extraVolumeMounts: the pods have a volume at /tls already: choose another path": {
			ExtraVolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: "/tls"}}},
	} {
		_, err := workload.Pod(&workload.Component{Name: "kcp", Extra: extra, Files: []workload.Files{{Name: "server", Secret: "server", Path: "/tls"}}})
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
