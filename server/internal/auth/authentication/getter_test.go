package authentication

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// secret is the only object.
type secret corev1.Secret

func (s *secret) Get(_ context.Context, _, _ string, into runtime.Object) error {
	(*corev1.Secret)(s).DeepCopyInto(into.(*corev1.Secret))
	return nil
}

func TestSecretsOfUsedTokensAreLabeledOnceADay(t *testing.T) {
	today := time.Now().UTC().Format(time.DateOnly)
	for name, c := range map[string]struct {
		kind   corev1.SecretType
		before string
		stored bool
	}{
		"never used":     {corev1.SecretTypeServiceAccountToken, "", true},
		"used long ago":  {corev1.SecretTypeServiceAccountToken, "2020-01-01", true},
		"used tomorrow":  {corev1.SecretTypeServiceAccountToken, time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly), false},
		"without tokens": {corev1.SecretTypeOpaque, "", false},
	} {
		object := &secret{Type: c.kind}
		if c.before != "" {
			object.Labels = map[string]string{serviceaccount.LastUsedLabelKey: c.before}
		}
		stored := ""
		getter := Getter{Objects: object, Label: func(_ context.Context, _ *corev1.Secret, label, day string) error {
			stored = label + "=" + day
			return context.Canceled // which does not deny access
		}}
		got, err := getter.GetSecret(t.Context(), "ns", "token")
		if err != nil || (stored != "") != c.stored || (c.stored && stored != serviceaccount.LastUsedLabelKey+"="+today) {
			t.Errorf("%s: stored %q, %v", name, stored, err)
		}
		if want := map[bool]string{true: today, false: c.before}[c.stored]; got.Labels[serviceaccount.LastUsedLabelKey] != want {
			t.Errorf("%s: upstream sees %v, want %s", name, got.Labels, want)
		}
	}
}
