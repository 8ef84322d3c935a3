package informers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// While a logical cluster arrives, lists of all clusters are refused for a few milliseconds, with a time in seconds after which clients
// should try again.
func TestARefusedListIsRepeatedAtOnce(t *testing.T) {
	lists := make(chan struct{}, 10)
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	factory := NewFactory()
	factory.From(resource, &cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		select {
		case lists <- struct{}{}:
		default:
		}
		refused := apierrors.NewServiceUnavailable("a logical cluster is being moved to or from this shard: retry the request")
		refused.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
		return nil, refused
	}})
	informer, err := factory.For(Kind{Resource: resource, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	go informer.Run(t.Context())
	for range 4 {
		<-lists
	}
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("four lists took %s", took)
	}
}

func TestAnInformerWithoutASourceIsNotStarted(t *testing.T) {
	factory := NewFactory()
	if _, err := factory.For(Kind{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Example: &corev1.ConfigMap{}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "configmaps") || !strings.Contains(got, "no source") {
			t.Errorf("got %s", got)
		}
	}()
	factory.Start(t.Context())
}
