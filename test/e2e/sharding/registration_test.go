package sharding

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var shards = corev1alpha1.SchemeGroupVersion.WithResource("shards")

func TestShardsRegisterInRoot(t *testing.T) {
	for _, s := range installation.Shards {
		kcptest.Eventually(t, s.Name+" is registered and ready", func(ctx context.Context) error {
			object, err := root().Objects(t, shards).Get(ctx, s.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			registered := &corev1alpha1.Shard{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, registered); err != nil {
				return err
			}
			if registered.Spec.BaseURL != s.InternalURL() || registered.Spec.ExternalURL != installation.URL() {
				return fmt.Errorf("its URLs are %v, want %s and %s", registered.Spec, s.InternalURL(), installation.URL())
			}
			for _, c := range registered.Status.Conditions {
				if c.Type == corev1alpha1.ShardReady && c.Status == metav1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions are %v", registered.Status.Conditions)
		})
	}
}
