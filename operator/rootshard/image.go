package rootshard

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/conditions"
	"github.com/kcplane/kcp/operator/shard"
)

// image is the one that the spec names; or the one that was chosen when the pods were first made, if the spec does not name
// another repository or another version; or else the default.
func image(spec *v1alpha1.ImageSpec, chosen, standard string) string {
	repository, release := cutVersion(standard)
	if spec == nil {
		spec = &v1alpha1.ImageSpec{}
	}
	named := ""
	switch {
	case spec.Digest != "":
		named = "@" + spec.Digest
	case spec.Tag != "":
		named = ":" + spec.Tag
	}
	before, runs := cutVersion(chosen)
	switch {
	case chosen != "" && (spec.Repository == "" || spec.Repository == before) && (named == "" || named == runs):
		return chosen
	case spec.Repository != "":
		repository = spec.Repository
	}
	if named == "" {
		named = release
	}
	return repository + named
}

// cutVersion splits an image into its repository, and :tag or @digest. A colon before the last slash is that of a port.
func cutVersion(image string) (repository, version string) {
	if i := strings.IndexByte(image, '@'); i >= 0 {
		return image[:i], image[i:]
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i:]
	}
	return image, ""
}

// imageOf returns the image of a container, if there is such a one.
func imageOf(pod corev1.PodSpec, container string) string {
	for _, c := range pod.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// versionOf returns the version that the tag of an image tells, or nil.
func versionOf(image string) *version.Version {
	_, tag := cutVersion(image)
	v, err := version.ParseSemantic(strings.TrimPrefix(tag, ":"))
	if err != nil {
		return nil
	}
	return v
}

// checkVersion refuses an image of a version that may not understand what is stored: one before that which has run, or further on
// than the next minor one. Of images that do not tell their version nothing is known.
func checkVersion(rs *v1alpha1.RootShard, image string) error {
	runs, wanted := versionOf(":"+rs.Status.Version), versionOf(image)
	if runs == nil || wanted == nil || runs.Major() == wanted.Major() && (wanted.Minor() == runs.Minor() || wanted.Minor() == runs.Minor()+1) {
		return nil
	}
	_, tag := cutVersion(image)
	if tag = tag[1:]; rs.Annotations[v1alpha1.AllowVersionAnnotation] == tag {
		return nil
	}
	return conditions.Stall("VersionRefused", "spec.image: kcp %s has run, and goes to the next minor version, not past it and not back to %s: "+
		"name another, or allow it with the annotation %s: %s", rs.Status.Version, tag, v1alpha1.AllowVersionAnnotation, tag)
}

// version writes down the version that is wanted as soon as a pod of it is ready, and may have stored something.
func (s *scope) version(ctx context.Context, set *appsv1.StatefulSet) {
	_, tag := cutVersion(s.rs.Status.Image)
	if v := versionOf(tag); v == nil {
		tag = ""
	}
	if tag = strings.TrimPrefix(tag, ":"); tag == s.rs.Status.Version {
		return
	}
	pods := &corev1.PodList{}
	if s.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)) != nil {
		return // it is found out the next time
	}
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue &&
				imageOf(pod.Spec, shard.Container) == s.rs.Status.Image {
				s.rs.Status.Version = tag
			}
		}
	}
}
