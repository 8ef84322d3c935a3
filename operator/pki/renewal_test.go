package pki_test

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/certmanager"
	"github.com/kcplane/kcp/operator/operatortest"
	"github.com/kcplane/kcp/operator/pki"
)

// Caches show what was made a moment later: what was read of a new Certificate is nothing.
func TestACertificateThatIsNotThereYetNeedsNoRenewal(t *testing.T) {
	c := operatortest.New()
	strict := interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if key.Name == "" {
				return errors.New("resource name may not be empty") // as clients of an API server say
			}
			return w.Get(ctx, key, object, opts...)
		},
	})
	owner := &v1alpha1.RootShard{}
	owner.Annotations = map[string]string{v1alpha1.RenewAnnotation: "now"}
	if heeded, err := pki.Renew(t.Context(), strict, owner, 1, "", []*certmanager.Certificate{{}}); heeded != "now" || err != nil {
		t.Errorf("got %q, %v", heeded, err)
	}
}
