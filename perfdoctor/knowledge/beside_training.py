"""Frames of libraries that do something besides training: loops that evaluate, and what is done with results."""

from perfdoctor.knowledge.frames import INSTALLED, meaning

# Loops of libraries that call a model without training it: what is called below them serves an evaluation.
EVALUATION_LOOPS = (
    # Lightning's validation during a fit, Trainer.validate, .test and .predict
    meaning(r"(?:lightning/pytorch|pytorch_lightning)/loops/(?:evaluation|prediction)_loop\.py", "", "evaluation"),
    # transformers.Trainer.evaluate and .predict
    meaning(
        rf"{INSTALLED}/transformers/trainer(?:_seq2seq)?\.py",
        "evaluate predict evaluation_loop prediction_loop",
        "evaluation",
    ),
    # fastai's Learner.fit and .validate
    meaning(rf"{INSTALLED}/fastai/learner\.py", "_do_epoch_validate", "evaluation"),
    # ultralytics' validators, sentence_transformers' evaluators, detectron2's
    meaning(rf"{INSTALLED}/ultralytics/engine/validator\.py", "", "evaluation"),
    meaning(rf"{INSTALLED}/sentence_transformers/(?:.+/)?evaluation/.*\.py", "", "evaluation"),
    meaning(rf"{INSTALLED}/detectron2/evaluation/evaluator\.py", "inference_on_dataset", "evaluation"),
)

# What is done with results. Below the model's call that is logging; above it, a query for data or a part of a sample.
RESULTS = (
    # requests.post, Session.post …; httpx.post, Client.post …
    meaning(rf"{INSTALLED}/requests/(?:api|sessions)\.py", "post put patch", "logging"),
    meaning(rf"{INSTALLED}/httpx/_(?:api|client)\.py", "post put patch", "logging"),
    # pictures: PIL.Image.Image.save, torchvision.utils.save_image and make_grid, imageio.imwrite, skimage.io.imsave
    meaning(rf"{INSTALLED}/PIL/Image\.py", "save", "logging"),
    meaning(rf"{INSTALLED}/torchvision/utils\.py", "", "logging"),
    meaning(rf"{INSTALLED}/imageio/(?:v2|v3)\.py", "imwrite imsave mimwrite mimsave volwrite", "logging"),
    meaning(rf"{INSTALLED}/skimage/io/.*\.py", "imsave", "logging"),
    # plots: matplotlib and seaborn draw on the CPU; plotly and bokeh write pages
    meaning(rf"{INSTALLED}/(?:matplotlib|seaborn|plotly|bokeh)/.*\.py", "", "logging"),
    # sound: torchaudio.save, soundfile.write, scipy.io.wavfile.write
    meaning(rf"{INSTALLED}/torchaudio/.*\.py", "save save_with_torchcodec", "logging"),
    meaning(rf"{INSTALLED}/(?:soundfile|scipy/io/wavfile)\.py", "write", "logging"),
    # tables: DataFrame.to_csv, to_parquet …
    meaning(
        rf"{INSTALLED}/pandas/core/(?:generic|frame)\.py",
        "to_csv to_excel to_feather to_hdf to_json to_parquet to_pickle to_sql",
        "logging",
    ),
    # text: print(tensor), pprint; json.dump, csv.DictWriter
    meaning(r"torch/_tensor_str\.py", "", "logging"),
    meaning(r"lib(?:64)?/python3\.\d+/pprint\.py", "", "logging"),
    meaning(r"lib(?:64)?/python3\.\d+/json/__init__\.py", "dump", "logging"),
    meaning(r"lib(?:64)?/python3\.\d+/csv\.py", "writerow writerows", "logging"),
)
