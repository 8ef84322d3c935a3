package serviceaccounttoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/go-jose/go-jose.v2/jwt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	key        = informers.Key{Cluster: "c", Namespace: "team", Name: "token"}
	errStorage = errors.New("etcd is away")
)

// secret returns the Secret for a token of the account robot, as change leaves it.
func secret(change func(*corev1.Secret)) *corev1.Secret {
	s := objecttest.In("c", &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "token", UID: "of the secret", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	})
	if change != nil {
		change(s)
	}
	return s
}

// filled is the change to a Secret that has everything.
func filled(s *corev1.Secret) {
	s.Annotations[corev1.ServiceAccountUIDKey] = "1"
	s.Data = map[string][]byte{"token": []byte(token), "ca.crt": []byte("CA"), "namespace": []byte("team")}
}

func account(uid string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "robot"}}
	a.UID = "1"
	if uid != "" {
		a.UID = "2"
	}
	return a
}

// generator returns the content of tokens in place of signed tokens.
type generator struct{ err error }

func (g generator) GenerateToken(ctx context.Context, claims *jwt.Claims, private any) (string, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return "", err
	}
	content, err := json.Marshal(private)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %s", cluster, claims.Subject, content), g.err
}

const token = `c system:serviceaccount:team:robot {"kubernetes.io/serviceaccount/service-account.name":"robot",` +
	`"kubernetes.io/serviceaccount/service-account.uid":"1","kubernetes.io/serviceaccount/secret.name":"token",` +
	`"kubernetes.io/serviceaccount/namespace":"team"}`

func TestSecretOfAServiceAccountToken(t *testing.T) {
	deleted := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("of the secret")}
	with := func(changes ...func(*corev1.Secret)) *corev1.Secret {
		s := secret(filled)
		for _, change := range changes {
			change(s)
		}
		return s
	}
	for _, tc := range []struct {
		name    string
		secret  *corev1.Secret
		account *corev1.ServiceAccount
		updated *corev1.Secret
		deleted *metav1.DeleteOptions
	}{
		{"A new Secret gets a token", secret(nil), account(""), secret(filled), nil},
		{"A complete Secret stays as it is", secret(filled), account(""), nil, nil},
		{"A token that exists is kept", with(func(s *corev1.Secret) { s.Data["token"] = []byte("mine"); delete(s.Data, "ca.crt") }), account(""),
			with(func(s *corev1.Secret) { s.Data["token"] = []byte("mine") }), nil},
		{"A token that was removed is generated again", with(func(s *corev1.Secret) { delete(s.Data, "token") }), account(""), secret(filled), nil},
		{"Other certificates are replaced", with(func(s *corev1.Secret) { s.Data["ca.crt"] = []byte("other") }), account(""), secret(filled), nil},
		{"Another namespace is replaced", with(func(s *corev1.Secret) { s.Data["namespace"] = []byte("other") }), account(""), secret(filled), nil},
		{"The UID of the account is added", with(func(s *corev1.Secret) { delete(s.Annotations, corev1.ServiceAccountUIDKey) }), account(""), secret(filled), nil},
		{
			"Other data is kept", secret(func(s *corev1.Secret) { s.Data = map[string][]byte{"mine": []byte("x")} }), account(""),
			with(func(s *corev1.Secret) { s.Data["mine"] = []byte("x") }), nil,
		},
		{"A Secret without an account is deleted", secret(filled), nil, nil, deleted},
		{"A new Secret without an account is deleted", secret(nil), nil, nil, deleted},
		{"A Secret of another account of the same name is deleted", secret(filled), account("other"), nil, deleted},
		{"A Secret that is being deleted stays as it is", secret(func(s *corev1.Secret) { now := metav1.Now(); s.DeletionTimestamp = &now }), nil, nil, nil},
		{"A Secret that is gone is no failure", nil, account(""), nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.secret, tc.account)
			if err := w.reconcile(nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.updated, w.updated); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.deleted, w.deleted); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	conflict, notFound := apierrors.NewConflict(resource, "token", errors.New("changed")), apierrors.NewNotFound(resource, "token")
	for _, tc := range []struct {
		name           string
		verb, resource string
		answer         error
		signing        error
		account        *corev1.ServiceAccount
		want           error
	}{
		{"A failure to read the account is retried, and the Secret stays", "get", "serviceaccounts", errStorage, nil, nil, errStorage},
		{"A failure to read the Secret is retried", "get", "secrets", errStorage, nil, account(""), errStorage},
		{"A Secret that was deleted before it is read is no failure", "get", "secrets", notFound, nil, account(""), nil},
		{"A failure to sign is retried", "", "", nil, errStorage, account(""), errStorage},
		{"A failure to update is retried", "update", "secrets", errStorage, nil, account(""), errStorage},
		{"A conflict is retried", "update", "secrets", conflict, nil, account(""), conflict},
		{"A Secret that was deleted before its update is no failure", "update", "secrets", notFound, nil, account(""), nil},
		{"A failure to delete is retried", "delete", "secrets", errStorage, nil, nil, errStorage},
		{"A Secret that was replaced before its deletion is no failure", "delete", "secrets", conflict, nil, nil, nil},
		{"A Secret that was deleted before its deletion is no failure", "delete", "secrets", notFound, nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, secret(nil), tc.account)
			if tc.verb != "" {
				w.kube.PrependReactor(tc.verb, tc.resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.answer })
			}
			if err := w.reconcile(tc.signing); !errors.Is(err, tc.want) {
				t.Errorf("got error %v, want %v", err, tc.want)
			}
			if w.updated != nil || w.deleted != nil {
				t.Errorf("got %v, %v", w.updated, w.deleted)
			}
		})
	}
}

func TestASecretThatChangedSinceItsEventIsLeftToItsNextEvent(t *testing.T) {
	w := newWorld(t, secret(nil), account(""))
	w.kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, secret(func(s *corev1.Secret) {
			s.ResourceVersion, s.Annotations = "later", map[string]string{corev1.ServiceAccountNameKey: "other"}
		}), nil
	})
	if err := w.reconcile(nil); err != nil || w.updated != nil || w.deleted != nil {
		t.Errorf("got %v, %v, %v", err, w.updated, w.deleted)
	}
}

func TestAnAccountConcernsItsTokenSecrets(t *testing.T) {
	named := func(name string, change func(*corev1.Secret)) *corev1.Secret {
		return secret(func(s *corev1.Secret) { s.Name = name; change(s) })
	}
	o := objecttest.New(t, secret(nil),
		named("of another account", func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountNameKey] = "other" }),
		named("of another type", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }),
		named("of another namespace", func(s *corev1.Secret) { s.Namespace = "other" }),
		objecttest.In("other", named("of another cluster", func(*corev1.Secret) {})),
	)
	got := o.Set.Secrets.NewIndex(accountOf).Find(informers.Key{Cluster: "c", Namespace: "team", Name: "robot"}.String())
	if diff := cmp.Diff([]informers.Key{key}, got); diff != "" {
		t.Error(diff)
	}
}

// world is what informers show, and the requests of the controller.
type world struct {
	o       *objecttest.Objects
	kube    *fake.Clientset
	updated *corev1.Secret
	deleted *metav1.DeleteOptions
	t       *testing.T
}

func newWorld(t *testing.T, s *corev1.Secret, a *corev1.ServiceAccount) *world {
	t.Helper()
	w := &world{o: objecttest.New(t), kube: &fake.Clientset{}, t: t}
	if s != nil {
		w.o.Show(s)
	}
	w.kube.AddReactor("get", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if get := action.(clienttesting.GetAction); a == nil || get.GetName() != a.Name || get.GetNamespace() != a.Namespace {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, get.GetName())
		}
		return true, a, nil
	})
	w.kube.AddReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		if s == nil {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
		}
		return true, s.DeepCopy(), nil
	})
	w.kube.AddReactor("update", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.updated = action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret)
		return true, w.updated, nil
	})
	w.kube.AddReactor("delete", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.DeleteActionImpl).DeleteOptions
		w.deleted = &options
		return true, nil, nil
	})
	return w
}

func (w *world) reconcile(signing error) error {
	w.t.Helper()
	c := New(Inputs{Set: w.o.Set, Kube: w.kube, Tokens: generator{signing}, CA: []byte("CA")})
	return c.Reconcile(w.t.Context(), key)
}
