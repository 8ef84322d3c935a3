package workload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// asked builds pods of a component with customizations of a user.
func asked(t *testing.T, spec string) *corev1.PodTemplateSpec {
	t.Helper()
	pod, err := Pod(&Component{Name: "kcp", Container: "kcp", Image: "kcp:v1", Template: &v1alpha1.DeploymentTemplate{
		Spec: &v1alpha1.DeploymentSpecTemplate{Template: &v1alpha1.PodTemplateSpec{Spec: &runtime.RawExtension{Raw: []byte(spec)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &pod
}

func TestPodsMayNotExceedTheLimitsOfTheInstallation(t *testing.T) {
	for name, test := range map[string]struct{ spec, says string }{
		"the host's disk": {`{"volumes":[{"name":"host","hostPath":{"path":"/"}}]}`, `volume "host"`},
		"privileges":      {`{"containers":[{"name":"kcp","securityContext":{"privileged":true}}]}`, `container "kcp"`},
		"root":            {`{"securityContext":{"runAsUser":0}}`, "runAsUser=0"},
		"the network":     {`{"hostNetwork":true}`, "hostNetwork=true"},
		"a token":         {`{"serviceAccountName":"admin","automountServiceAccountToken":true}`, "ServiceAccount admin"},
		"a projected token": {`{"volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]}`,
			"ServiceAccount default"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Security{}.Admit(asked(t, test.spec), "spec.deploymentTemplate")
			if err == nil || !strings.HasPrefix(err.Error(), "spec.deploymentTemplate: ") || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v", err)
			}
			allowed := Security{Privileged: true, ServiceAccounts: []string{"admin", "default"}}
			if err := allowed.Admit(asked(t, test.spec), "spec.deploymentTemplate"); err != nil {
				t.Errorf("though it is allowed: %v", err)
			}
		})
	}
	if err := (Security{}).Admit(asked(t, `{"serviceAccountName":"pulls","priorityClassName":"high"}`), ""); err != nil {
		t.Errorf("a pod without a token: %v", err)
	}
}

// OpenShift's restricted-v2 refuses users and groups outside of the namespace's range, and pods without the other restrictions.
func TestAClusterThatAssignsUsersGetsPodsWithoutThem(t *testing.T) {
	pod := asked(t, `{}`)
	if err := (Security{AssignsIDs: true}).Admit(pod, ""); err != nil {
		t.Fatal(err)
	}
	c, own := pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext
	if c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil || own.RunAsUser != nil {
		t.Errorf("users are set: %+v", c)
	}
	if !*c.RunAsNonRoot || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *own.AllowPrivilegeEscalation ||
		len(own.Capabilities.Drop) != 1 || own.Capabilities.Drop[0] != "ALL" {
		t.Errorf("not restricted: %+v, %+v", c, own)
	}
	pod = asked(t, `{"securityContext":{"runAsUser":1000700000}}`)
	if err := (Security{AssignsIDs: true}).Admit(pod, ""); err != nil || *pod.Spec.SecurityContext.RunAsUser != 1000700000 {
		t.Errorf("the user of the template is lost: %+v (%v)", pod.Spec.SecurityContext, err)
	}
}
